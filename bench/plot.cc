#include "bench/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/markup.h"

namespace hps::bench {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 300;
constexpr double kLeft = 62;
constexpr double kRight = 622;
constexpr double kTop = 12;
constexpr double kBottom = 254;
constexpr size_t kColours = 8;

// What is drawn, and what comes below it.
struct Picture {
  double width = kWidth;
  double height = kHeight;
  std::string drawn;
  std::string below;
};

// A figure with its caption.
std::string Figure(const std::string& title, const std::string& about, size_t number,
                   const Picture& picture) {
  const std::string id = absl::StrCat("plot", number);
  return absl::StrCat("<figure class=\"plot\">\n<figcaption id=\"", id, "\"><strong>",
                      Escaped(title), "</strong> <span>", Escaped(about),
                      "</span></figcaption>\n<svg viewBox=\"0 0 ", Coordinate(picture.width), " ",
                      Coordinate(picture.height), "\" role=\"img\" aria-labelledby=\"", id, "\">\n",
                      picture.drawn, "</svg>\n", picture.below, "</figure>\n");
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrCat("<text x=\"", Coordinate(x), "\" y=\"", Coordinate(y), "\" text-anchor=\"",
                      anchor, "\">", Escaped(text), "</text>\n");
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return absl::StrCat("<line class=\"", style, "\" x1=\"", Coordinate(x1), "\" y1=\"",
                      Coordinate(y1), "\" x2=\"", Coordinate(x2), "\" y2=\"", Coordinate(y2),
                      "\"/>\n");
}

// An axis: where a value is between 0 and 1 of its length, and the values that are marked.
class Scale {
 public:
  Scale(Axis axis, std::vector<double> values) : axis_(axis) {
    std::erase_if(values, [&](double value) { return !CanShow(value); });
    if (values.empty()) return;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    switch (axis_) {
      case Axis::kLinear:
        SetLinear(*least, *most);
        break;
      case Axis::kLog:
        SetLog(*least, *most);
        break;
      case Axis::kNines:
        SetNines(*most);
        break;
    }
  }

  bool CanShow(double value) const {
    if (!std::isfinite(value)) return false;
    if (axis_ == Axis::kLog) return value > 0;
    return axis_ == Axis::kLinear || (value >= 0 && value < 1);
  }
  double At(double value) const { return (Position(value) - from_) / (to_ - from_); }
  const std::vector<double>& ticks() const { return ticks_; }
  std::string TickText(double tick) const {
    if (axis_ != Axis::kNines) return ShortNumber(tick);
    // As many digits as it has nines, and no 100 % for what is a little below.
    const int digits = std::clamp(static_cast<int>(std::round(-std::log10(1 - tick))) - 2, 0, 9);
    return absl::StrFormat("%.*f %%", digits, 100 * tick);
  }

 private:
  double Position(double value) const {
    if (axis_ == Axis::kLog) return std::log10(value);
    if (axis_ == Axis::kNines) return -std::log10(1 - value);
    return value;
  }

  void SetLinear(double least, double most) {
    const double low = std::min(least, 0.0);
    const double high = std::max(most, 0.0);
    const double range = high > low ? high - low : 1;
    constexpr double kSteps = 5;
    const double power = std::pow(10, std::floor(std::log10(range / kSteps)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (factor * power * kSteps >= range * 0.999) step = factor * power;
    }
    from_ = std::floor(low / step) * step;
    to_ = std::max(std::ceil(high / step - 1e-9) * step, from_ + step);
    for (int i = 0; from_ + i * step <= to_ + step / 2; ++i) ticks_.push_back(from_ + i * step);
  }

  void SetLog(double least, double most) {
    // 1, 2, 5 in each decade while they are few, then the decades alone.
    const int low = static_cast<int>(std::floor(std::log10(least) + 1e-9));
    const int high = static_cast<int>(std::ceil(std::log10(most) - 1e-9));
    std::vector<double> marks;
    for (int decade = low; decade <= high; ++decade) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor == 1.0 || high - low <= 3) marks.push_back(factor * std::pow(10, decade));
      }
    }
    // From the last mark that is not above all, to the first that is not below any.
    size_t first = 0;
    while (first + 1 < marks.size() && marks[first + 1] <= least * 1.0001) ++first;
    size_t last = marks.size() - 1;
    while (last > first + 1 && marks[last - 1] >= most * 0.9999) --last;
    for (size_t i = first; i <= last; ++i) ticks_.push_back(marks[i]);
    if (ticks_.size() < 2) ticks_.push_back(10 * ticks_.front());
    from_ = std::log10(ticks_.front());
    to_ = std::log10(ticks_.back());
  }

  void SetNines(double most) {
    from_ = 0;
    to_ = std::max(Position(most), 1.0);
    ticks_.push_back(0);
    if (to_ < 3.5) ticks_.push_back(0.5);
    double rest = 0.1;
    for (; - std::log10(rest) <= to_ + 1e-9; rest /= 10) ticks_.push_back(1 - rest);
  }

  const Axis axis_;
  double from_ = 0;
  double to_ = 1;
  std::vector<double> ticks_;
};

double AcrossOf(const Scale& scale, double value) {
  return kLeft + scale.At(value) * (kRight - kLeft);
}
double DownOf(const Scale& scale, double value) {
  return kBottom - scale.At(value) * (kBottom - kTop);
}

// Marks differ in their shape, so that lines can be told apart without colours.
std::string Mark(size_t shape, double x, double y, const std::string& title) {
  constexpr double kSize = 3.6;
  const auto at = [&](double dx, double dy) {
    return absl::StrCat(Coordinate(x + dx * kSize), ",", Coordinate(y + dy * kSize));
  };
  const auto polygon = [&](const std::string& points) {
    return absl::StrCat("<polygon class=\"mark\" points=\"", points, "\">");
  };
  const std::string inner =
      title.empty() ? "" : absl::StrCat("<title>", Escaped(title), "</title>");
  switch (shape % 4) {
    case 0:
      return absl::StrCat("<circle class=\"mark\" cx=\"", Coordinate(x), "\" cy=\"", Coordinate(y),
                          "\" r=\"", Coordinate(kSize), "\">", inner, "</circle>\n");
    case 1:
      return absl::StrCat(
          polygon(absl::StrCat(at(-1, -1), " ", at(1, -1), " ", at(1, 1), " ", at(-1, 1))), inner,
          "</polygon>\n");
    case 2:
      return absl::StrCat(polygon(absl::StrCat(at(0, -1.2), " ", at(1.2, 1), " ", at(-1.2, 1))),
                          inner, "</polygon>\n");
    default:
      return absl::StrCat(polygon(absl::StrCat(at(0, -1.35), " ", at(1.35, 0), " ", at(0, 1.35),
                                               " ", at(-1.35, 0))),
                          inner, "</polygon>\n");
  }
}

std::string ClassOf(const PlotLine& line) {
  return absl::StrCat("s", line.colour % kColours, line.is_dashed ? " dashed" : "");
}

std::string DrawLine(const PlotLine& line, const Scale& x, const Scale& y) {
  std::string path;
  std::string marks;
  size_t index = 0;
  for (const auto& [across, down] : line.points) {
    if (!x.CanShow(across) || !y.CanShow(down)) continue;
    const double at_x = AcrossOf(x, across);
    const double at_y = DownOf(y, down);
    absl::StrAppend(&path, path.empty() ? "M" : " L", Coordinate(at_x), " ", Coordinate(at_y));
    if (line.mark_every == 0 || index++ % line.mark_every != 0) continue;
    marks += Mark(line.colour, at_x, at_y,
                  absl::StrCat(line.name, ": ", ShortNumber(down), " at ", x.TickText(across)));
  }
  return absl::StrCat("<g class=\"", ClassOf(line), "\"><path class=\"line\" d=\"", path, "\"/>\n",
                      marks, "</g>\n");
}

std::string DrawAxes(const Plot& plot, const Scale& x, const Scale& y) {
  std::string drawn;
  for (const double tick : y.ticks()) {
    const double at = DownOf(y, tick);
    drawn += Line(kLeft, at, kRight, at, "grid");
    drawn += Text(kLeft - 7, at + 4, "end", y.TickText(tick));
  }
  for (const double tick : x.ticks()) {
    const double at = AcrossOf(x, tick);
    drawn += Line(at, kBottom, at, kBottom + 4, "axis");
    drawn += Text(at, kBottom + 17, "middle", x.TickText(tick));
  }
  drawn += Line(kLeft, kBottom, kRight, kBottom, "axis");
  drawn += Text((kLeft + kRight) / 2, kBottom + 38, "middle", plot.x_label);
  return drawn;
}

std::string Legend(const std::vector<PlotLine>& lines) {
  std::string list = "<ul class=\"legend\">\n";
  for (const PlotLine& line : lines) {
    absl::StrAppend(&list, "<li><svg class=\"sample ", ClassOf(line),
                    "\" viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path class=\"line\" "
                    "d=\"M1 6 L29 6\"/>",
                    line.mark_every > 0 ? Mark(line.colour, 15, 6, "") : "", "</svg>",
                    Escaped(line.name), "</li>\n");
  }
  return list + "</ul>\n";
}

bool IsShown(const PlotLine& line, const Scale& x, const Scale& y) {
  return std::any_of(line.points.begin(), line.points.end(), [&](const auto& point) {
    return x.CanShow(point.first) && y.CanShow(point.second);
  });
}

std::string PartLegend(const std::vector<std::string>& names) {
  std::string list = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&list, "<li><span class=\"swatch p", i % kColours, "\"></span>",
                    Escaped(names[i]), "</li>\n");
  }
  return list + "</ul>\n";
}

// Of the plots with one row for each case.
constexpr double kRowHeight = 26;
constexpr double kNameWidth = 330;
constexpr double kMarginWidth = 960;

}  // namespace

std::string PlotFigure(const Plot& plot, size_t number) {
  std::vector<double> across, down;
  for (const PlotLine& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      across.push_back(x);
      down.push_back(y);
    }
  }
  const Scale x(plot.x, across);
  const Scale y(plot.y, down);
  std::vector<PlotLine> lines = plot.lines;
  std::erase_if(lines, [&](const PlotLine& line) { return !IsShown(line, x, y); });
  if (lines.empty()) return "";
  std::string picture = DrawAxes(plot, x, y);
  for (const PlotLine& line : lines) picture += DrawLine(line, x, y);
  const std::string about =
      plot.y_label.empty() ? plot.about : absl::StrCat(plot.y_label, "; ", plot.about);
  return Figure(plot.title, about, number, {.drawn = picture, .below = Legend(lines)});
}

std::string BarFigure(const BarPlot& plot, size_t number) {
  if (plot.bars.empty()) return "";
  constexpr double kBarLeft = 120;
  std::string picture;
  double y = 4;
  for (const BarPlot::Bar& bar : plot.bars) {
    double whole = 0;
    for (const double part : bar.parts) whole += part;
    if (!(whole > 0)) continue;
    picture += Text(kBarLeft - 8, y + kRowHeight / 2 + 4, "end", bar.name);
    double x = kBarLeft;
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      const double width = bar.parts[i] / whole * (kRight - kBarLeft);
      if (!(width > 0)) continue;
      absl::StrAppend(
          &picture, "<rect class=\"p", i % kColours, "\" x=\"", Coordinate(x), "\" y=\"",
          Coordinate(y + 3), "\" width=\"", Coordinate(width), "\" height=\"",
          Coordinate(kRowHeight - 6), "\"><title>",
          Escaped(absl::StrCat(bar.name, ", ", plot.part_names[i], ": ", ShortNumber(bar.parts[i]),
                               " (", ShortNumber(100 * bar.parts[i] / whole), " %)")),
          "</title></rect>\n");
      x += width;
    }
    y += kRowHeight;
  }
  return Figure(plot.title, plot.about, number,
                {.height = y + 4, .drawn = picture, .below = PartLegend(plot.part_names)});
}

std::string MarginFigure(const MarginPlot& plot, size_t number) {
  if (plot.margins.empty()) return "";
  constexpr double kLeast = 0.25;
  constexpr double kMost = 4;
  const auto across = [&](double margin) {
    const double share =
        std::log(std::clamp(margin, kLeast, kMost) / kLeast) / std::log(kMost / kLeast);
    return kNameWidth + share * (kMarginWidth - kNameWidth - 50);
  };
  const double bottom = 6 + kRowHeight * static_cast<double>(plot.margins.size());
  std::string picture;
  for (const double tick : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    picture += Line(across(tick), 6, across(tick), bottom, tick == 1 ? "limit" : "grid");
    const std::string text = tick == kLeast  ? "0.25x or less"
                             : tick == kMost ? "4x or more"
                             : tick == 1     ? "target"
                                             : absl::StrCat(ShortNumber(tick), "x");
    picture += Text(across(tick), bottom + 17, "middle", text);
  }
  double y = 6 + kRowHeight / 2;
  for (const MarginPlot::Margin& margin : plot.margins) {
    const bool met = margin.margin >= 1;
    picture += Text(kNameWidth - 40, y + 4, "end", margin.name);
    absl::StrAppend(
        &picture, "<g class=\"", met ? "good" : "bad", "\">",
        Line(across(1), y, across(margin.margin), y, "stem"),
        Mark(met ? 0 : 3, across(margin.margin), y, absl::StrCat(margin.name, ": ", margin.text)),
        "</g>\n");
    y += kRowHeight;
  }
  return Figure(plot.title, plot.about, number,
                {.width = kMarginWidth, .height = bottom + 26, .drawn = picture, .below = ""});
}

}  // namespace hps::bench
