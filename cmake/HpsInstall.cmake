# `cmake --install`: the command, libhps.so, the public headers, the libraries behind hps::hps, and
# the package that `find_package(hps CONFIG)` finds. examples/find_package is a project that uses
# it. The target `installed` builds what is installed.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Appends `target` and every hps_* library that it links to the list named `collected`.
function(hps_collect_linked target collected)
  if(target IN_LIST ${collected})
    return()
  endif()
  list(APPEND ${collected} ${target})
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  list(FILTER linked INCLUDE REGEX "^(hps_[a-z0-9_]+|grpc_messages|onnx_messages)$")
  foreach(other IN LISTS linked)
    hps_collect_linked(${other} ${collected})
  endforeach()
  set(${collected} ${${collected}} PARENT_SCOPE)
endfunction()

# The public API is implemented by src/node and what it links.
add_library(hps::hps ALIAS hps_node)
hps_collect_linked(hps_node HPS_INSTALLED)
foreach(target IN LISTS HPS_INSTALLED)
  string(REGEX REPLACE "^hps_" "" folder ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
endforeach()
set_target_properties(hps_node PROPERTIES EXPORT_NAME hps)

add_custom_target(installed DEPENDS hps hps_shared ${HPS_INSTALLED})
# Before the first file is installed: otherwise a partial build leaves a partial installation.
install(CODE "
  foreach(file \"$<TARGET_FILE:hps>\" \"$<TARGET_FILE:hps_shared>\")
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"hps: \${file} is not built: \"
                          \"run `ninja -C ${PROJECT_BINARY_DIR} installed`\")
    endif()
  endforeach()")

# The command, with what it loads of OpenVINO: PyPI's package has that inside this tree, where the
# user of an installed program may not look. The image of deploy/docker has this component alone.
install(TARGETS hps RUNTIME COMPONENT command)
if(HPS_OPENVINO)
  set(HPS_OPENVINO_FOLDER ${CMAKE_INSTALL_LIBDIR}/hps)
  file(RELATIVE_PATH HPS_OPENVINO_FROM_COMMAND ${CMAKE_INSTALL_FULL_BINDIR}
       ${CMAKE_INSTALL_FULL_LIBDIR}/hps)
  set_target_properties(hps PROPERTIES INSTALL_RPATH "$ORIGIN/${HPS_OPENVINO_FROM_COMMAND}")
  install(DIRECTORY $<TARGET_FILE_DIR:openvino::runtime>/ DESTINATION ${HPS_OPENVINO_FOLDER}
          COMPONENT command
          FILES_MATCHING
          PATTERN "libopenvino.so.*"
          PATTERN "libopenvino_intel_cpu_plugin.so"
          PATTERN "libopenvino_onnx_frontend.so.*"
          PATTERN "libtbb.so.*"
          PATTERN "libtbbmalloc.so.*"  # this and the next two: libtbb.so loads them
          PATTERN "libtbbbind*.so.*"
          PATTERN "libhwloc.so.*")
endif()

install(TARGETS hps_shared LIBRARY)
install(TARGETS ${HPS_INSTALLED} EXPORT hpsTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hps DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(HPS_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/hps)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hpsConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/hpsConfig.cmake
                              INSTALL_DESTINATION ${HPS_PACKAGE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hpsConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(EXPORT hpsTargets NAMESPACE hps:: DESTINATION ${HPS_PACKAGE_FOLDER})
install(FILES ${PROJECT_BINARY_DIR}/hpsConfig.cmake ${PROJECT_BINARY_DIR}/hpsConfigVersion.cmake
        DESTINATION ${HPS_PACKAGE_FOLDER})

# What python/CMakeLists.txt links, from this build as it is.
set(HPS_BUILD_TREE ${HPS_INSTALLED})
if(HPS_CUDA)
  set(HPS_TRAIN_GPU hps_train_gpu)
else()
  set(HPS_TRAIN_GPU hps_no_train_gpu)
endif()
foreach(target hps_c_api hps_predict hps_server hps_publish hps_train_cpu ${HPS_TRAIN_GPU})
  hps_collect_linked(${target} HPS_BUILD_TREE)
endforeach()
foreach(target IN LISTS HPS_BUILD_TREE)
  if(NOT target IN_LIST HPS_INSTALLED)
    string(REGEX REPLACE "^hps_" "" folder ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  endif()
endforeach()
export(TARGETS ${HPS_BUILD_TREE} hps_options NAMESPACE hps::
       FILE ${PROJECT_BINARY_DIR}/hpsBuildTree.cmake)
