// Pictures of a report: SVG inside a page of HTML, drawn without scripts. Colours come from the
// page's style (classes s0 to s7), so that they follow light and dark; lines also differ by their
// marks, and every mark says its values when it is pointed at.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hps::bench {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
  size_t colour = 0;                              // lines of one colour belong together
  bool is_dashed = false;                         // a bound, or the second of a pair
  size_t mark_every = 1;                          // points from mark to mark; 0 = no marks
};

enum class Axis {
  kLinear,  // from 0
  kLog,
  kNines,  // shares from 0 to below 1: 0, 90 %, 99 %, 99.9 % at even distances
};

struct Plot {
  std::string title;
  std::string about;  // a sentence for those who can't see it, and below the title
  std::string x_label;
  std::string y_label;
  Axis x = Axis::kLinear;
  Axis y = Axis::kLinear;
  std::vector<PlotLine> lines;
};

// A <figure> with caption, picture and legend. Points that an axis can't show are left out; so are
// lines without points. `number` makes its ids unique in the page. Empty when nothing is to show.
std::string PlotFigure(const Plot& plot, size_t number);

// Shares of a whole for each of some cases, as bars.
struct BarPlot {
  struct Bar {
    std::string name;
    std::vector<double> parts;  // as many as there are part names
  };
  std::string title;
  std::string about;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
};
std::string BarFigure(const BarPlot& plot, size_t number);

// How far each figure is from its target: 1 is on it, more is better.
struct MarginPlot {
  struct Margin {
    std::string name;
    double margin = 1;
    std::string text;  // "1.24 of >= 1.2"
  };
  std::string title;
  std::string about;
  std::vector<Margin> margins;
};
std::string MarginFigure(const MarginPlot& plot, size_t number);

}  // namespace hps::bench
