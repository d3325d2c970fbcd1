// The files of the dashboard, as they were when the program was built: it needs no file at run time
// and no internet. CMakeLists.txt of this folder names them and generates their bytes.
#pragma once

#include <span>
#include <string_view>

namespace hps::server {

struct Asset {
  std::string_view path;  // as in the URL: "/", "/assets/..."
  std::string_view content_type;
  std::string_view bytes;
};

std::span<const Asset> Assets();

}  // namespace hps::server
