# CUDA for src/gpu, src/l1_gpu, src/network/gpu and src/train_gpu. Included when HPS_CUDA is on.
#
# The compiler is the one of CMAKE_CUDA_COMPILER or CUDACXX, else the one that `make gpu` installs
# from PyPI's wheels into $HPS_CUDA_VENV (.venv-cuda/), else a system toolkit's.

if(CMAKE_VERSION VERSION_LESS 4.0)
  message(FATAL_ERROR "HPS_CUDA needs CMake 4: FindCUDAToolkit of ${CMAKE_VERSION} does not know "
                      "the layout of the wheels. `make gpu` installs one and uses it.")
endif()

set(HPS_CUDA_VENV "$ENV{HPS_CUDA_VENV}")
if(HPS_CUDA_VENV STREQUAL "")
  set(HPS_CUDA_VENV ${PROJECT_SOURCE_DIR}/.venv-cuda)
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS ${HPS_CUDA_VENV}/cuda/bin /usr/local/cuda/bin
               NO_CMAKE_SYSTEM_PATH
               DOC "The CUDA compiler; `tools/bootstrap.sh gpu` installs one")
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "HPS_CUDA: there is no nvcc in ${HPS_CUDA_VENV}/cuda, in "
                        "/usr/local/cuda or on the PATH: run `tools/bootstrap.sh gpu`, or name "
                        "one with -DCMAKE_CUDA_COMPILER=...")
  endif()
endif()

# Machine code for Ampere, Hopper and Blackwell; PTX of the last for what comes later. One is enough
# while developing, and compiles in a third of the time: -DHPS_CUDA_ARCHITECTURES=90-real
set(HPS_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING
    "GPU architectures that kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES")
set(CMAKE_CUDA_ARCHITECTURES ${HPS_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(HPS_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${HPS_CCACHE})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)

# cuBLASLt's headers, for src/network/gpu: in the venv, where `make gpu` puts them, or of a toolkit.
find_path(HPS_CUBLAS_INCLUDE cublasLt.h HINTS ${HPS_CUDA_VENV}/cublas/include
          ${CUDAToolkit_INCLUDE_DIRS} DOC "The folder of cublasLt.h")
if(NOT HPS_CUBLAS_INCLUDE)
  message(FATAL_ERROR "HPS_CUDA: there is no cublasLt.h: run `tools/bootstrap.sh gpu`, or name its "
                      "folder with -DHPS_CUBLAS_INCLUDE=...")
endif()

# Line tables for profilers cost nothing at run time. The host half of the code is optimized and
# carries debug information as all other code does.
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -lineinfo -Xcompiler=-g1")

# nvcc's own warnings are errors, and g++'s on the host half; those that the code which nvcc
# generates can't pass (-Wpedantic, -Wold-style-cast, -Wcast-qual) are left to review.
target_compile_options(hps_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings --expt-relaxed-constexpr \
-Xcompiler=-Wall,-Wextra,-Wshadow,-Wnon-virtual-dtor,-Wno-missing-field-initializers,-Werror>")

# A packed build (tools/gpu_pack.sh) brings its libraries along, and so must those that they link:
# RPATH holds for these too, RUNPATH would not.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
add_link_options(-Wl,--disable-new-dtags)
