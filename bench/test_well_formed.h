// Whether text is well-formed XML, as far as pages need it: for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hps::bench {

// Empty, or what is wrong: tags that don't match, markup in texts or attributes, unknown entities.
inline std::string WhatIsMalformed(std::string_view text) {
  std::vector<std::string> open;
  const auto entities_are_known = [](std::string_view part) {
    for (size_t at = part.find('&'); at != part.npos; at = part.find('&', at + 1)) {
      const std::string_view rest = part.substr(at);
      bool known = false;
      for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known = known || rest.starts_with(entity);
      if (!known) return false;
    }
    return true;
  };
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] != '<') {
      const std::string_view content = text.substr(at, text.find('<', at) - at);
      const bool is_style = !open.empty() && open.back() == "style";
      if (!is_style && !entities_are_known(content)) return "entity in: " + std::string(content);
      if (content.find('>') != content.npos && !is_style) return "> in: " + std::string(content);
      at += content.size();
      continue;
    }
    // A tag ends with the first ">" outside of quotes.
    size_t end = at + 1;
    bool quoted = false;
    for (; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return "< in a tag: " + std::string(text.substr(at, 80));
    }
    if (end >= text.size()) return "no end of: " + std::string(text.substr(at, 80));
    const std::string_view tag = text.substr(at + 1, end - at - 1);
    if (!entities_are_known(tag)) return "entity in: " + std::string(tag);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != name) return "unexpected <" + std::string(tag);
      open.pop_back();
    } else if (!tag.ends_with("/") && !tag.starts_with("!")) {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

}  // namespace hps::bench
