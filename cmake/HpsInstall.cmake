# `cmake --install`: the public headers, the libraries behind hps::hps, and the package that
# `find_package(hps CONFIG)` finds. examples/find_package is a project that uses it.

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

# The public API is implemented by src/model and what it links.
add_library(hps::hps ALIAS hps_model)
hps_collect_linked(hps_model HPS_INSTALLED)
foreach(target IN LISTS HPS_INSTALLED)
  string(REGEX REPLACE "^hps_" "" folder ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
endforeach()
set_target_properties(hps_model PROPERTIES EXPORT_NAME hps)

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
foreach(target hps_c_api hps_predict hps_server hps_publish hps_train_cpu)
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
