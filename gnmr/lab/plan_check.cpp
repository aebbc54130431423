// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/lab/setting_texts.h"

namespace gnmr::lab {
namespace {

constexpr const char* kPlanArm = "plan";

// What the suite or an arm sets, and what writes files or measures what no arm uses.
constexpr std::array<std::string_view, 16> kNotOfTheRun{
    "out",         "seed",         "resume", "resume_step",   "label", "threads", "controller", "random_units",
    "watch_steps", "disarm_after", "patrol", "evidence_from", "norms", "errors",  "evidence",   "always_high"};

std::string words_text(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

const CellResult* finite_cell(const std::vector<CellResult>& cells, std::int64_t seed) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [&](const CellResult& cell) { return cell.seed == seed; });
  return found == cells.end() || found->diverged() ? nullptr : &*found;
}

/// With its interval: `58% [22, 94]`, `+0.0385 [+0.0067, +0.0703]`.
std::string share_text(const Ratio& share) {
  const std::string text = fmt::format("{:.0f}%", 100 * share.value);
  if (!share.low || !share.high) return text;
  return text + fmt::format(" [{:.0f}, {:.0f}]", 100 * *share.low, 100 * *share.high);
}

std::string loss_text(const Estimate& loss) {
  const std::string text = fmt::format("{:+.4f}", loss.mean);
  if (!loss.half_width) return text;
  return text + fmt::format(" [{:+.4f}, {:+.4f}]", loss.mean - *loss.half_width, loss.mean + *loss.half_width);
}

std::string row_text(std::string_view what, std::string_view predicted, std::string_view measured) {
  return fmt::format("{:<34}{:<12}{}\n", what, predicted, measured);
}

}  // namespace

std::vector<std::string> check_texts(const run::TrainSettings& settings) {
  std::vector<std::string> texts;
  for (const SettingText& text : changed_settings(settings)) {
    if (std::find(kNotOfTheRun.begin(), kNotOfTheRun.end(), text.name) != kNotOfTheRun.end()) continue;
    texts.push_back(text.name + "=" + text.value);
  }
  // No arm recovers, so no arm has a use for errors.
  texts.insert(texts.end(), {"controller=watch", "selector=norms", "coarse_error=0", "patrol=0"});
  return texts;
}

std::vector<Arm> check_arms(const HighPlan& plan, const run::TrainSettings& settings) {
  std::vector<std::string> kept = settings.always_high;
  const std::string low_high = "always_high=" + words_text(kept);
  for (const PlannedUnit& unit : plan.units) {
    if (unit.chosen) kept.push_back(unit.name);
  }
  return {{"high", "high precision", "Every GEMM in high precision", {"recipe=none", "faults=", "set="}},
          {"low", "low precision", "The run's recipe, no unit recovers", {low_high}},
          {kPlanArm, "the plan", "The same with the units of the plan high", {"always_high=" + words_text(kept)}}};
}

PlanCheck check_plan(const Comparison& comparison) {
  PlanCheck check;
  std::vector<SeedLosses> seeds;
  std::vector<double> above;
  for (const CellResult& cell : comparison.cells_of(kPlanArm)) {
    const CellResult* const high = finite_cell(comparison.cells_of("high"), cell.seed);
    const CellResult* const low = finite_cell(comparison.cells_of("low"), cell.seed);
    if (cell.diverged() || high == nullptr || low == nullptr) continue;
    seeds.push_back({.high = high->loss, .low = low->loss, .arm = cell.loss});
    above.push_back(cell.loss - high->loss);
    check.units_high += cell.high.mean;
  }
  check.seeds = seeds.size();
  if (seeds.empty()) return check;
  check.units_high /= static_cast<double>(seeds.size());
  check.above_high = estimate(above);
  const GapClosed gap = gap_closed(seeds);
  check.gap = gap.gap;
  check.closed = gap.closed;
  return check;
}

std::string check_text(const HighPlan& plan, const PlanCheck& check) {
  if (check.seeds == 0) return "No seed has a finite loss with all units high, all low and the plan.\n";
  std::string text = row_text("", "predicted",
                              fmt::format("measured, {}{}", counted(check.seeds, "seed"),
                                          check.above_high.half_width ? " [95% interval]" : ", so no interval"));
  const double expected = plan.removed_share;
  text += row_text("share of the gap closed", fmt::format("{:.0f}%", 100 * expected),
                   check.closed.count > 0 ? share_text(check.closed) : "no gap above its noise");
  text += row_text("loss above high precision, nats",
                   check.closed.count > 0 ? fmt::format("{:+.4f}", (1 - expected) * check.gap.mean) : "-",
                   loss_text(check.above_high));
  text += row_text("the same with all units low", "-", loss_text(check.gap));
  text += row_text("units high", fmt::format("{:.1f}%", 100 * plan.unit_share()),
                   fmt::format("{:.1f}%", 100 * check.units_high));
  text += row_text("their multiply-adds", fmt::format("{:.1f}%", 100 * plan.cost_share), "-");
  return text;
}

std::string check_json(const HighPlan& plan, const PlanCheck& check) {
  io::JsonText out;
  const auto number = [&out](std::string_view key, double value) {
    std::string text;
    io::append_json_number(text, value);
    out.key(key).plain(std::isfinite(value) ? text : "null");
  };
  const auto estimated = [&](std::string_view key, const Estimate& value) {
    out.key(key).object([&] {
      number("mean", value.mean);
      if (!value.half_width) return;
      number("low", value.mean - *value.half_width);
      number("high", value.mean + *value.half_width);
    });
  };
  const auto put_ratio = [&](std::string_view key, const Ratio& ratio) {
    out.key(key).object([&] {
      number("ratio", ratio.value);
      if (ratio.low) number("low", *ratio.low);
      if (ratio.high) number("high", *ratio.high);
    });
  };
  out.object([&] {
    out.key("seeds").plain(std::to_string(check.seeds));
    number("predicted_closed", plan.removed_share);
    if (check.closed.count > 0) put_ratio("closed", check.closed);
    if (check.seeds > 0) {
      estimated("above_high", check.above_high);
      estimated("gap", check.gap);
      number("units_high", check.units_high);
    }
    number("cost_share", plan.cost_share);
  });
  return out.str();
}

}  // namespace gnmr::lab
