// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/io/json_text.h"

namespace gnmr::report {
namespace {

using io::JsonText;

// Six digits are more than a screen can show.
void add_number(JsonText& out, std::optional<double> value) {
  out.plain(value && std::isfinite(*value) ? fmt::format("{:.6g}", *value) : "null");
}

void add_step(JsonText& out, double value) { out.plain(fmt::format("{:.12g}", value)); }

void add_steps(JsonText& out, const std::vector<double>& values) {
  out.array(values, [&](double value) { add_step(out, value); });
}

void add_numbers(JsonText& out, const std::vector<double>& values) {
  out.array(values, [&](double value) { add_number(out, value); });
}

void add_texts(JsonText& out, const std::vector<std::string>& values) {
  out.array(values, [&](const std::string& value) { out.text(value); });
}

/// The document as it can stand in a page: nothing in it can end the element that it stands in.
std::string in_page(const JsonText& out) {
  std::string safe;
  safe.reserve(out.str().size());
  for (const char character : out.str()) {
    if (character == '<') {
      safe += "\\u003c";
    } else {
      safe += character;
    }
  }
  return safe;
}

void add(JsonText& out, const Curve& curve) {
  out.object([&] {
    add_steps(out.key("x"), curve.steps);
    add_numbers(out.key("y"), curve.values);
    add_steps(out.key("bad"), curve.bad_steps);
  });
}

void add(JsonText& out, const std::vector<Bar>& bars) {
  out.array(bars, [&](const Bar& bar) {
    add_steps(out, {static_cast<double>(bar.row), static_cast<double>(bar.first_step),
                    static_cast<double>(bar.last_step), static_cast<double>(bar.end)});
  });
}

void add(JsonText& out, const HeatMap& heat) {
  const UnitMap& map = heat.map;
  const auto byte_of = heat.kind == MapKind::errors ? error_byte : ratio_byte;
  std::string bytes;
  bytes.reserve(map.values.size());
  for (const float value : map.values) bytes += static_cast<char>(byte_of(value));
  out.object([&] {
    add_texts(out.key("units"), heat.units);
    add_step(out.key("first"), static_cast<double>(map.first_step));
    add_step(out.key("width"), static_cast<double>(map.column_steps));
    add_step(out.key("columns"), static_cast<double>(map.columns));
    out.key("cells").text(base64(bytes));
    add(out.key("recoveries"), heat.recoveries);
    add(out.key("faults"), heat.faults);
    if (heat.kind != MapKind::errors) return;
    out.key("chronic").array(heat.chronic, [&](std::size_t row) { add_step(out, static_cast<double>(row)); });
  });
}

void add(JsonText& out, const Timeline& timeline) {
  out.object([&] {
    add_texts(out.key("units"), timeline.units);
    add(out.key("bars"), timeline.bars);
    out.key("denials").array(timeline.denials, [&](const RowMark& denial) {
      add_steps(out, {static_cast<double>(denial.row), static_cast<double>(denial.step)});
    });
  });
}

void add(JsonText& out, const RunView& run) {
  Curve use;
  if (run.journal) {
    for (const InUse& in_use : run.journal->in_use) {
      use.add(static_cast<double>(in_use.step), static_cast<double>(in_use.units));
    }
  }
  out.object([&] {
    add_step(out.key("first"), run.first_step);
    add_step(out.key("last"), run.last_step);
    out.key("watchOnly").truth(run.watch_only);
    add(out.key("train"), run.losses.train);
    add(out.key("high"), run.losses.eval_high);
    add(out.key("low"), run.losses.eval_low);
    add_number(out.key("ceiling"), run.losses.ceiling);
    add(out.key("norm"), run.grad_norm.curve);
    add_steps(out.key("skipped"), run.grad_norm.skipped_steps);
    if (run.heat) add(out.key("heat"), *run.heat);
    if (run.errors) add(out.key("errors"), *run.errors);
    if (run.journal && run.journal->timeline) add(out.key("timeline"), *run.journal->timeline);
    add(out.key("use"), use);
    add_number(out.key("budget"), run.budget ? std::optional(static_cast<double>(*run.budget)) : std::nullopt);
  });
}

void add(JsonText& out, const ArmCurves& curves) {
  out.object([&] {
    out.key("seeds").array(curves.seeds,
                           [&](const Curve& curve) { out.object([&] { add(out.key("curve"), curve); }); });
    add(out.key("mean"), curves.mean);
  });
}

/// 0 none, 255 not finite, 1 to 254 between two powers of 2.
unsigned char byte_between(float value, double low, double high) {
  if (std::isnan(value)) return 0;
  if (!std::isfinite(value) || value < 0) return 255;
  const double power = value > 0 ? std::clamp(std::log2(static_cast<double>(value)), low, high) : low;
  return static_cast<unsigned char>(1 + std::lround((power - low) / (high - low) * 253));
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

unsigned char ratio_byte(float ratio) { return byte_between(ratio, -6, 6); }

unsigned char error_byte(float error) { return byte_between(error, -12, 0); }

std::string run_payload(const RunView& run) {
  JsonText out;
  out.object([&] { out.key("runs").array(std::span(&run, 1), [&](const RunView& view) { add(out, view); }); });
  return in_page(out);
}

std::string suite_payload(const SuiteView& suite) {
  JsonText out;
  out.object([&] {
    add_step(out.key("first"), suite.first_step);
    add_step(out.key("last"), suite.last_step);
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
      add_number(out.key("train"), ceiling_of(suite, &ArmView::train_loss));
      add_number(out.key("high"), ceiling_of(suite, &ArmView::eval_high));
      add_number(out.key("low"), ceiling_of(suite, &ArmView::eval_low));
    });
    out.key("gapTitle").text(suite.gap_title);
    out.key("gaps").array(suite.gaps, [&](const Interval& gap) {
      out.object([&] {
        add_step(out.key("arm"), static_cast<double>(gap.arm));
        out.key("text").text(gap.text);
        add_number(out.key("value"), gap.value);
        add_number(out.key("low"), gap.low);
        add_number(out.key("high"), gap.high);
      });
    });
    out.key("runs").array(suite.runs, [&](const RunView& run) { add(out, run); });
  });
  return in_page(out);
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
        add_number(out.key("level"), chart.level);
      });
    });
  });
  return in_page(out);
}

}  // namespace gnmr::report
