// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gnmr/io/json_text.h"

namespace gnmr::report {
namespace {

/// Appends to a document; commas come by themselves.
class JsonText {
 public:
  void open(char bracket) {
    separate();
    text_ += bracket;
  }
  void close(char bracket) { text_ += bracket; }
  void key(std::string_view name) {
    separate();
    io::append_json_string(text_, name);
    text_ += ':';
  }
  void text(std::string_view value) {
    separate();
    io::append_json_string(text_, value);
  }
  // Six digits are more than a screen can show.
  void number(double value) {
    separate();
    if (std::isfinite(value)) {
      fmt::format_to(std::back_inserter(text_), "{:.6g}", value);
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

void add_curve(JsonText& out, std::string_view name, const Curve& curve) {
  out.key(name);
  out.open('{');
  out.key("x");
  out.open('[');
  for (const double step : curve.steps) out.step(step);
  out.close(']');
  out.key("y");
  out.open('[');
  for (const double value : curve.values) out.number(value);
  out.close(']');
  out.key("bad");
  out.open('[');
  for (const double step : curve.bad_steps) out.step(step);
  out.close(']');
  out.close('}');
}

void add_texts(JsonText& out, std::string_view name, const std::vector<std::string>& texts) {
  out.key(name);
  out.open('[');
  for (const std::string& text : texts) out.text(text);
  out.close(']');
}

void add_bars(JsonText& out, std::string_view name, const std::vector<Bar>& bars) {
  out.key(name);
  out.open('[');
  for (const Bar& bar : bars) {
    out.open('[');
    out.step(static_cast<double>(bar.row));
    out.step(static_cast<double>(bar.first_step));
    out.step(static_cast<double>(bar.last_step));
    out.step(static_cast<double>(bar.end));
    out.close(']');
  }
  out.close(']');
}

void add_heat(JsonText& out, const HeatMap& heat) {
  const RatioMap& map = heat.ratios;
  std::string bytes;
  bytes.reserve(map.ratios.size());
  for (const float ratio : map.ratios) bytes += static_cast<char>(ratio_byte(ratio));
  out.key("heat");
  out.open('{');
  add_texts(out, "units", heat.units);
  out.key("first");
  out.step(static_cast<double>(map.first_step));
  out.key("width");
  out.step(static_cast<double>(map.column_steps));
  out.key("columns");
  out.step(static_cast<double>(map.columns));
  out.key("cells");
  out.text(base64(bytes));
  add_bars(out, "recoveries", heat.recoveries);
  add_bars(out, "faults", heat.faults);
  out.close('}');
}

void add_timeline(JsonText& out, const Timeline& timeline) {
  out.key("timeline");
  out.open('{');
  add_texts(out, "units", timeline.units);
  add_bars(out, "bars", timeline.bars);
  out.key("denials");
  out.open('[');
  for (const RowMark& denial : timeline.denials) {
    out.open('[');
    out.step(static_cast<double>(denial.row));
    out.step(static_cast<double>(denial.step));
    out.close(']');
  }
  out.close(']');
  out.close('}');
}

void add_optional(JsonText& out, std::string_view name, const std::optional<double>& value) {
  out.key(name);
  out.number(value.value_or(std::nan("")));
}

void add_run(JsonText& out, const RunView& run) {
  out.open('{');
  out.key("first");
  out.step(run.first_step);
  out.key("last");
  out.step(run.last_step);
  out.key("watchOnly");
  out.truth(run.watch_only);
  add_curve(out, "train", run.train_loss);
  add_curve(out, "high", run.eval_high);
  add_curve(out, "low", run.eval_low);
  add_optional(out, "ceiling", run.loss_ceiling);
  add_curve(out, "norm", run.grad_norm);
  out.key("skipped");
  out.open('[');
  for (const double step : run.skipped_steps) out.step(step);
  out.close(']');
  if (run.heat) add_heat(out, *run.heat);
  if (run.timeline) add_timeline(out, *run.timeline);
  Curve use;
  for (const InUse& in_use : run.in_use) {
    use.add(static_cast<double>(in_use.step), static_cast<double>(in_use.units));
  }
  add_curve(out, "use", use);
  add_optional(out, "budget", run.budget ? std::optional<double>(static_cast<double>(*run.budget)) : std::nullopt);
  out.close('}');
}

void add_arm_curves(JsonText& out, std::string_view name, const ArmCurves& curves) {
  out.key(name);
  out.open('{');
  out.key("seeds");
  out.open('[');
  for (const Curve& curve : curves.seeds) {
    out.open('{');
    add_curve(out, "curve", curve);
    out.close('}');
  }
  out.close(']');
  add_curve(out, "mean", curves.mean);
  out.close('}');
}

void add_runs(JsonText& out, const std::vector<RunView>& runs) {
  out.key("runs");
  out.open('[');
  for (const RunView& run : runs) add_run(out, run);
  out.close(']');
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
  out.open('{');
  out.key("runs");
  out.open('[');
  add_run(out, run);
  out.close(']');
  out.close('}');
  return out.take();
}

std::string suite_payload(const SuiteView& suite) {
  JsonText out;
  out.open('{');
  out.key("first");
  out.step(suite.first_step);
  out.key("last");
  out.step(suite.last_step);
  out.key("arms");
  out.open('[');
  for (const ArmView& arm : suite.arms) {
    out.open('{');
    out.key("label");
    out.text(arm.label);
    add_arm_curves(out, "train", arm.train_loss);
    add_arm_curves(out, "high", arm.eval_high);
    add_arm_curves(out, "low", arm.eval_low);
    add_arm_curves(out, "use", arm.budget_use);
    out.close('}');
  }
  out.close(']');
  out.key("ceilings");
  out.open('{');
  add_optional(out, "train", ceiling_of(suite, &ArmView::train_loss));
  add_optional(out, "high", ceiling_of(suite, &ArmView::eval_high));
  add_optional(out, "low", ceiling_of(suite, &ArmView::eval_low));
  out.close('}');
  out.key("gapTitle");
  out.text(suite.gap_title);
  out.key("gaps");
  out.open('[');
  for (const Interval& gap : suite.gaps) {
    out.open('{');
    out.key("arm");
    out.step(static_cast<double>(gap.arm));
    out.key("text");
    out.text(gap.text);
    out.key("value");
    out.number(gap.value);
    out.key("low");
    out.number(gap.low);
    out.key("high");
    out.number(gap.high);
    out.close('}');
  }
  out.close(']');
  add_runs(out, suite.runs);
  out.close('}');
  return out.take();
}

}  // namespace gnmr::report
