// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/io/json_text.h"

namespace gnmr::report {
namespace {

/// Appends to a document; commas come by themselves.
class JsonText {
 public:
  void text(std::string_view value) {
    separate();
    io::append_json_string(text_, value);
  }
  // Six digits are more than a screen can show.
  void number(std::optional<double> value) {
    separate();
    if (value && std::isfinite(*value)) {
      fmt::format_to(std::back_inserter(text_), "{:.6g}", *value);
    } else {
      text_ += "null";
    }
  }
  void step(double value) {
    separate();
    fmt::format_to(std::back_inserter(text_), "{:.12g}", value);
  }
  void truth(bool value) {
    separate();
    text_ += value ? "true" : "false";
  }

  /// The key of the value that comes next; returns the document.
  JsonText& key(std::string_view name) {
    text(name);
    text_ += ':';
    return *this;
  }

  /// An object with the keys and values that `members` writes.
  template <class Members>
  void object(const Members& members) {
    separate();
    text_ += '{';
    members();
    text_ += '}';
  }

  /// An array with what `write` writes for each item.
  template <class Items, class Write>
  void array(const Items& items, const Write& write) {
    separate();
    text_ += '[';
    for (const auto& item : items) write(item);
    text_ += ']';
  }

  void steps(const std::vector<double>& values) {
    array(values, [&](double value) { step(value); });
  }
  void numbers(const std::vector<double>& values) {
    array(values, [&](double value) { number(value); });
  }
  void texts(const std::vector<std::string>& values) {
    array(values, [&](const std::string& value) { text(value); });
  }

  /// The document; `<` is written so that nothing in it can end the element that it stands in.
  std::string take() {
    std::string safe;
    safe.reserve(text_.size());
    for (const char character : text_) {
      if (character == '<') {
        safe += "\\u003c";
      } else {
        safe += character;
      }
    }
    return safe;
  }

 private:
  void separate() {
    if (text_.empty()) return;
    const char last = text_.back();
    if (last != '[' && last != '{' && last != ':') text_ += ',';
  }
  std::string text_;
};

void add(JsonText& out, const Curve& curve) {
  out.object([&] {
    out.key("x").steps(curve.steps);
    out.key("y").numbers(curve.values);
    out.key("bad").steps(curve.bad_steps);
  });
}

void add(JsonText& out, const std::vector<Bar>& bars) {
  out.array(bars, [&](const Bar& bar) {
    out.steps({static_cast<double>(bar.row), static_cast<double>(bar.first_step), static_cast<double>(bar.last_step),
               static_cast<double>(bar.end)});
  });
}

void add(JsonText& out, const HeatMap& heat) {
  const RatioMap& map = heat.ratios;
  std::string bytes;
  bytes.reserve(map.ratios.size());
  for (const float ratio : map.ratios) bytes += static_cast<char>(ratio_byte(ratio));
  out.object([&] {
    out.key("units").texts(heat.units);
    out.key("first").step(static_cast<double>(map.first_step));
    out.key("width").step(static_cast<double>(map.column_steps));
    out.key("columns").step(static_cast<double>(map.columns));
    out.key("cells").text(base64(bytes));
    add(out.key("recoveries"), heat.recoveries);
    add(out.key("faults"), heat.faults);
  });
}

void add(JsonText& out, const Timeline& timeline) {
  out.object([&] {
    out.key("units").texts(timeline.units);
    add(out.key("bars"), timeline.bars);
    out.key("denials").array(timeline.denials, [&](const RowMark& denial) {
      out.steps({static_cast<double>(denial.row), static_cast<double>(denial.step)});
    });
  });
}

void add(JsonText& out, const RunView& run) {
  Curve use;
  for (const InUse& in_use : run.in_use) {
    use.add(static_cast<double>(in_use.step), static_cast<double>(in_use.units));
  }
  out.object([&] {
    out.key("first").step(run.first_step);
    out.key("last").step(run.last_step);
    out.key("watchOnly").truth(run.watch_only);
    add(out.key("train"), run.train_loss);
    add(out.key("high"), run.eval_high);
    add(out.key("low"), run.eval_low);
    out.key("ceiling").number(run.loss_ceiling);
    add(out.key("norm"), run.grad_norm);
    out.key("skipped").steps(run.skipped_steps);
    if (run.heat) add(out.key("heat"), *run.heat);
    if (run.timeline) add(out.key("timeline"), *run.timeline);
    add(out.key("use"), use);
    out.key("budget").number(run.budget ? std::optional(static_cast<double>(*run.budget)) : std::nullopt);
  });
}

void add(JsonText& out, const ArmCurves& curves) {
  out.object([&] {
    out.key("seeds").array(curves.seeds,
                           [&](const Curve& curve) { out.object([&] { add(out.key("curve"), curve); }); });
    add(out.key("mean"), curves.mean);
  });
}

std::optional<double> ceiling_of(const SuiteView& suite, ArmCurves ArmView::*pick) {
  std::vector<Curve> curves;
  for (const ArmView& arm : suite.arms) {
    curves.insert(curves.end(), (arm.*pick).seeds.begin(), (arm.*pick).seeds.end());
  }
  return loss_ceiling(curves);
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8U | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    const std::size_t given = std::min<std::size_t>(bytes.size() - i, 3);
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= given ? kDigits[group >> (18U - 6U * j) & 63U] : '=';
    }
  }
  return text;
}

unsigned char ratio_byte(float ratio) {
  constexpr double kEnd = 6.0;
  if (std::isnan(ratio)) return 0;
  if (!std::isfinite(ratio) || ratio < 0) return 255;
  const double power = ratio > 0 ? std::clamp(std::log2(static_cast<double>(ratio)), -kEnd, kEnd) : -kEnd;
  return static_cast<unsigned char>(1 + std::lround((power + kEnd) / (2 * kEnd) * 253));
}

std::string run_payload(const RunView& run) {
  JsonText out;
  out.object([&] { out.key("runs").array(std::span(&run, 1), [&](const RunView& view) { add(out, view); }); });
  return out.take();
}

std::string suite_payload(const SuiteView& suite) {
  JsonText out;
  out.object([&] {
    out.key("first").step(suite.first_step);
    out.key("last").step(suite.last_step);
    out.key("arms").array(suite.arms, [&](const ArmView& arm) {
      out.object([&] {
        out.key("label").text(arm.label);
        add(out.key("train"), arm.train_loss);
        add(out.key("high"), arm.eval_high);
        add(out.key("low"), arm.eval_low);
        add(out.key("use"), arm.budget_use);
      });
    });
    out.key("ceilings").object([&] {
      out.key("train").number(ceiling_of(suite, &ArmView::train_loss));
      out.key("high").number(ceiling_of(suite, &ArmView::eval_high));
      out.key("low").number(ceiling_of(suite, &ArmView::eval_low));
    });
    out.key("gapTitle").text(suite.gap_title);
    out.key("gaps").array(suite.gaps, [&](const Interval& gap) {
      out.object([&] {
        out.key("arm").step(static_cast<double>(gap.arm));
        out.key("text").text(gap.text);
        out.key("value").number(gap.value);
        out.key("low").number(gap.low);
        out.key("high").number(gap.high);
      });
    });
    out.key("runs").array(suite.runs, [&](const RunView& run) { add(out, run); });
  });
  return out.take();
}

std::string sweep_payload(const SweepPage& page) {
  JsonText out;
  out.object([&] {
    out.key("charts").array(page.charts, [&](const SweepChart& chart) {
      out.object([&] {
        out.key("x").text(chart.x_name);
        out.key("y").text(chart.y_name);
        out.key("lines").array(chart.lines, [&](const SweepLine& line) {
          out.object([&] {
            out.key("name").text(line.name);
            add(out.key("curve"), line.curve);
          });
        });
        out.key("level").number(chart.level);
      });
    });
  });
  return out.take();
}

}  // namespace gnmr::report
