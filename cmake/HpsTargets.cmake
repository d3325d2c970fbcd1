# How every folder declares its one library and its one test program.
#
#   hps_library(l2_memory SOURCES ... HEADERS ... DEPENDS base tier)
#   hps_test(l2_memory SOURCES ... DEPENDS ...)
#   hps_fuzz(redis_reply TARGET FuzzRedisReply SOURCES fuzz_main.cc ... DEPENDS l2_redis)
#
# HPS_UNITY compiles eight sources of a target as one file, which takes a third less time. A source
# that has a name in common with one of these (a constant in the unnamed namespace) is in UNITS:
# each part of `UNITS a.cc b.cc | c.cc d.cc` becomes one more file. ALONE names sources that are
# compiled alone: for another instruction set, or because programs link them without the others.
#
# DEPENDS names folders; it repeats the layer picture of ARCHITECTURE.md, and the layer check
# compares it with the real includes.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(HPS_CCACHE ccache)
if(HPS_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HPS_CCACHE})
endif()
find_program(HPS_MOLD mold)
if(HPS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Optimized code with line tables is enough for a debugger's backtrace and links in a tenth of the
# time of full debug information. Assertions per key (HPS_DCHECK) are on in sanitizer builds.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

# A unit includes its sources by their whole paths. Without this, __FILE__ would put the checkout's
# folder into each object, and ccache would compile for each checkout what it has compiled before.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>")

add_library(hps_options INTERFACE)
set(HPS_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual
    -Wno-interference-size -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND HPS_WARNINGS -Wthread-safety -Wno-unknown-warning-option)
endif()
if(HPS_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Instrumented code of the standard library (std::regex) looks uninitialized to GCC 12, falsely.
  list(APPEND HPS_WARNINGS -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(HPS_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  # A name in one source may hide a name in another source of the same unit.
  list(APPEND HPS_WARNINGS -Wno-shadow)
endif()
target_compile_options(hps_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${HPS_WARNINGS}>")
target_include_directories(hps_options INTERFACE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR})
if(HPS_SANITIZE)
  add_compile_options(-fsanitize=${HPS_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HPS_SANITIZE})
endif()
if(HPS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
if(HPS_SANITIZE OR HPS_FUZZ)
  add_compile_definitions(HPS_SANITIZED=1)
  # A sanitizer's reports stay readable at -Og, which compiles in a third of the time of -O2.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1")
endif()

# Says which sources of the target are compiled as one file.
function(hps_set_units target)
  cmake_parse_arguments(ARG "" "" "SOURCES;UNITS;ALONE" ${ARGN})
  # Kernels share names: each .cu file is compiled alone.
  set(cuda_sources ${ARG_SOURCES})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${ARG_ALONE} ${cuda_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT ARG_UNITS)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  set(part 0)
  foreach(source IN LISTS ARG_UNITS)
    if(source STREQUAL "|")
      math(EXPR part "${part} + 1")
    else()
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP apart_${part})
    endif()
  endforeach()
  list(FILTER ARG_SOURCES INCLUDE REGEX "\\.cc$")
  list(REMOVE_ITEM ARG_SOURCES ${ARG_UNITS} ${ARG_ALONE})
  set(count 0)
  foreach(source IN LISTS ARG_SOURCES)
    math(EXPR part "${count} / ${CMAKE_UNITY_BUILD_BATCH_SIZE}")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${part})
  endforeach()
endfunction()

function(hps_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;UNITS;ALONE;HEADERS;DEPENDS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND hps_)
  if(ARG_SOURCES)
    add_library(hps_${name} STATIC ${ARG_SOURCES} ${ARG_HEADERS})
    hps_set_units(hps_${name} SOURCES ${ARG_SOURCES} UNITS ${ARG_UNITS} ALONE ${ARG_ALONE})
    target_include_directories(hps_${name} PUBLIC
                               $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:include>)
    target_compile_features(hps_${name} PUBLIC cxx_std_20)
    target_link_libraries(hps_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LIBRARIES}
                          $<BUILD_INTERFACE:hps_options>)
  else()
    add_library(hps_${name} INTERFACE)
    target_include_directories(hps_${name} INTERFACE
                               $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
    target_link_libraries(hps_${name} INTERFACE ${ARG_DEPENDS} ${ARG_LIBRARIES}
                          $<BUILD_INTERFACE:hps_options>)
  endif()
  set_property(GLOBAL APPEND PROPERTY HPS_LIBRARIES hps_${name})
endfunction()

set(HPS_TEST_OPTIMIZATION -O1)
if(HPS_SANITIZE)
  set(HPS_TEST_OPTIMIZATION -O0)
endif()

# One test program per folder: <name>_test. Its tests are found by running it. GPU marks one that
# wants a device: tools/gpu_check.sh runs it (and where there is none, it skips what needs one).
function(hps_test name)
  if(NOT HPS_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "GPU" "" "SOURCES;UNITS;ALONE;DEPENDS;LIBRARIES" ${ARGN})
  if(ARG_GPU)
    set_property(GLOBAL APPEND PROPERTY HPS_GPU_TESTS ${name}_test)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND hps_)
  add_executable(${name}_test ${ARG_SOURCES})
  hps_set_units(${name}_test SOURCES ${ARG_SOURCES} UNITS ${ARG_UNITS} ALONE ${ARG_ALONE})
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} ${ARG_LIBRARIES} GTest::gmock
                        GTest::gtest_main hps_options)
  # Most of a full build's time goes into optimizing tests, which gain little from it.
  target_compile_options(${name}_test PRIVATE
                         $<$<COMPILE_LANGUAGE:CXX>:${HPS_TEST_OPTIMIZATION}>
                         # With -O1, g++ 12 takes a replaced operator new for a mismatch.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-mismatched-new-delete>)
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        ${PROJECT_BINARY_DIR}/tests)
endfunction()

# A program of libFuzzer, fuzz_<name>; with the option HPS_FUZZ only. TARGET names the function that
# fuzz_main.cc calls, where the folder has several. The target fuzz-programs builds them all.
function(hps_fuzz name)
  if(NOT HPS_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TARGET" "SOURCES;DEPENDS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND hps_)
  add_executable(fuzz_${name} ${ARG_SOURCES})
  if(ARG_TARGET)
    target_compile_definitions(fuzz_${name} PRIVATE HPS_FUZZ_TARGET=${ARG_TARGET})
  endif()
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_DEPENDS} hps_options)
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  if(NOT TARGET fuzz-programs)
    add_custom_target(fuzz-programs)
  endif()
  add_dependencies(fuzz-programs fuzz_${name})
endfunction()
