# Writes a source file with the bytes of the dashboard's files, at configure time (and again when
# one of them changes), so that the program needs no file at run time.
#
#   hps_embed_assets(OUTPUT.cc "URL path|content type|file" ...)
function(hps_embed_assets output)
  set(data "")
  set(entries "")
  set(number 0)
  foreach(asset ${ARGN})
    string(REGEX MATCH "^([^|]*)[|]([^|]*)[|]([^|]*)$" matched "${asset}")
    set(path "${CMAKE_MATCH_1}")
    set(type "${CMAKE_MATCH_2}")
    set(name "${CMAKE_MATCH_3}")
    if(type MATCHES "^text/")
      string(APPEND type "; charset=utf-8")  # not in the list above: CMake would split it there
    endif()
    set(file ${CMAKE_CURRENT_SOURCE_DIR}/assets/${name})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
    string(APPEND data "constexpr char kAsset${number}[] = {\n${bytes}};\n")
    string(APPEND entries
           "    {\"${path}\", \"${type}\", {kAsset${number}, sizeof(kAsset${number})}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
"// Written by EmbedAssets.cmake.
#include \"server/pages/assets.h\"

namespace hps::server {
namespace {

${data}
constexpr Asset kAssets[] = {
${entries}};

}  // namespace

std::span<const Asset> Assets() { return kAssets; }

}  // namespace hps::server
")
endfunction()
