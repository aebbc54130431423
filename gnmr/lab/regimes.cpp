// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/regimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/lab/setting_texts.h"

namespace gnmr::lab {
namespace {

/// All operands in one format and scaling, neither of which any built-in recipe has.
std::string uniform_recipe(std::string_view name, std::string_view about, std::string_view rule) {
  return fmt::format(
      "{{\n  \"name\": \"{0}\",\n  \"about\": \"{1}\",\n"
      "  \"input\": {2},\n  \"weight\": {2},\n  \"output_gradient\": {2}\n}}\n",
      name, about, rule);
}

std::string int8_tensor_recipe() {
  return uniform_recipe("int8-tensor", "Operands in 8-bit integers, one scale per tensor.",
                        R"({"format": "int8", "scaling": "tensor"})");
}

/// A bug in four layers, from step 60 to the end.
std::vector<std::string> reenacted_bug(std::string_view kind) {
  return {"recipe=fp8-delayed", fmt::format("faults={}", kind), "fault_every=1", "fault_layers=4", "max_o=4"};
}

/// MX as OCP has it: a block's scale is the power of two below its largest value, so what comes within an eighth of the
/// next one is saturated.
std::string mx_recipe(std::string_view name, std::string_view gradient) {
  return fmt::format(
      "{{\n  \"name\": \"{0}\",\n"
      "  \"about\": \"MXFP8 with OCP's scales, which saturate: E4M3, output gradient {1}.\",\n"
      "  \"input\": {{\"format\": \"e4m3\", \"scaling\": \"mx\"}},\n"
      "  \"weight\": {{\"format\": \"e4m3\", \"scaling\": \"mx\"}},\n"
      "  \"output_gradient\": {{\"format\": \"{1}\", \"scaling\": \"mx\"}}\n}}\n",
      name, gradient);
}

/// Delayed scaling whose scales are looked at again only every `interval` steps.
std::string stale_recipe(int interval) {
  const auto operand = [interval](std::string_view name, std::string_view format) {
    return fmt::format(R"(  "{}": {{"format": "{}", "scaling": "delayed", "history": 16, "interval": {}, )"
                       R"("choice": "largest", "margin": 0}})",
                       name, format, interval);
  };
  return fmt::format(
             "{{\n  \"name\": \"fp8-stale-{0}\",\n"
             "  \"about\": \"fp8-delayed with scales that are updated every {0} steps.\",\n",
             interval) +
         operand("input", "e4m3") + ",\n" + operand("weight", "e4m3") + ",\n" + operand("output_gradient", "e5m2") +
         "\n}\n";
}

constexpr const char* kPaperAbout =
    "The preset `paper`: the abstract's rule with public descriptions' values, not the paper's own (docs/algorithm.md)";
constexpr std::string_view kAllArms = "all";
constexpr char kParameters = ':';  // between an arm, or a rule, and what is changed in it

/// Of `rival=zclip:z=4` the rule alone: other parameters stand in the place of these.
std::string_view rule_of_rival(std::string_view text) {
  text.remove_prefix(text.find('=') + 1);
  return text.substr(0, text.find(kParameters));
}

template <class Named>
std::string names_of(const std::vector<Named>& all) {
  std::string names;
  for (const Named& one : all) names += (names.empty() ? "" : ", ") + one.name;
  return names;
}

bool contains(const std::vector<Arm>& arms, std::string_view name) {
  return std::any_of(arms.begin(), arms.end(), [&](const Arm& arm) { return arm.name == name; });
}

/// The arm under a name of its own, with settings that are written NAME=VALUE,...
Arm with_other_settings(Arm arm, const std::string& name, std::string_view settings) {
  arm.name = arm.label = name;
  const auto rival = std::find_if(arm.texts.begin(), arm.texts.end(),
                                  [](const std::string& text) { return text.starts_with("rival="); });
  if (rival != arm.texts.end()) {
    *rival = fmt::format("rival={}{}{}", rule_of_rival(*rival), kParameters, settings);
    return arm;
  }
  arm.about += fmt::format("; {}", settings);
  for (std::size_t comma = 0; comma != settings.npos;
       settings = settings.substr(std::min(settings.size(), comma + 1))) {
    comma = settings.find(',');
    arm.texts.emplace_back(settings.substr(0, comma));
  }
  settings_from_texts(arm.texts);
  return arm;
}

}  // namespace

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> all{
      {"int4-act", "Activations in 4-bit integers with one scale per tensor", {"recipe=int4-act"}},
      {"int3-act", "Activations in 3-bit integers with one scale per tensor", {"recipe=int3-act"}},
      {"nvfp4", "Every operand in NVFP4", {"recipe=nvfp4"}},
      {"fp8-stale-32",
       "FP8 with scales that are updated every 32 steps, at a high learning rate",
       {"lr=0.01"},
       stale_recipe(32)},
      {"fp8-stale-100",
       "FP8 with scales that are updated every 100 steps, at a high learning rate",
       {"lr=0.01"},
       stale_recipe(100)},
      {"outliers",
       "8-bit integers with a scale per row, and one channel in 32 thirty times as large as the others",
       {"recipe=int8", "outliers=30"}},
      {"int8-outliers",
       "8-bit integers with one scale per tensor, and one channel in 32 thirty times as large as the others",
       {"outliers=30", "max_o=4"},
       int8_tensor_recipe()},
      {"mx-last-bin",
       "A student of a fixed teacher in MXFP8 (E4M3, gradients E5M2, OCP's scales), its layer norms too",
       {"model=student-teacher", "steps=1500", "batch=16", "sequence=16", "lr=0.003", "min_lr=0.01", "warmup=100",
        "weight_decay=0"},
       mx_recipe("mxfp8-ocp", "e5m2")},
      {"mx-last-bin-512",
       "For a GPU: a wider student, E4M3 for gradients too, a constant learning rate, no clipping, 6,000 steps of "
       "2,048",
       {"model=student-teacher-512", "steps=6000", "batch=64", "sequence=32", "lr=0.0006", "min_lr=1", "warmup=0",
        "weight_decay=0", "beta2=0.999", "clip=0", "eval_every=500"},
       mx_recipe("mxfp8-ocp-e4m3", "e4m3")},
      {"fp8-domain",
       "FP8 with delayed scaling; half-way the text changes to bytes that it did not have",
       {"recipe=fp8-delayed", "then_at=201", "then_data=@shifted"}},
      {"nvfp4-late",
       "Every operand in NVFP4, five times as many steps, the learning rate decaying to a thousandth",
       {"recipe=nvfp4", "steps=2000", "min_lr=0.001"}},
      {"nvfp4-gemm", "Every operand in NVFP4; units are GEMMs", {"recipe=nvfp4", "granularity=product", "max_o=12"}},
      {"mxfp4-gemm",
       "Every operand in MXFP4; units are GEMMs",
       {"granularity=product", "max_o=12"},
       uniform_recipe("mxfp4", "Operands in MXFP4: E2M1 with an E8M0 scale for each 32 elements along the sum.",
                      R"({"format": "e2m1", "scaling": "mx"})")},
      {"long", "FP8 with delayed scaling, five times as many steps", {"recipe=fp8-delayed", "steps=2000"}},
      {"cached-weight",
       "Semi-natural, RE-ENACTED BUG: from step 60 on four layers keep their weights' FP8 data while scales are "
       "renewed",
       reenacted_bug("cached-weight")},
      {"missed-amax",
       "Semi-natural, RE-ENACTED BUG: from step 60 on scales of gradients stay 1 in four layers, as under "
       "recomputation",
       reenacted_bug("missed-amax")},
      {"wrong-amax",
       "Semi-natural, RE-ENACTED BUG: from step 60 on four layers have a neighbour's amaxes, as of the wrong ranks",
       reenacted_bug("wrong-amax")},
      {"transplanted-outliers",
       "Semi-natural, TRANSPLANTED OUTLIERS: INT8 per tensor; at step 200 four channels of each SwiGLU become 64 times "
       "as large",
       {"transplant_at=200", "transplant_channels=4", "transplant_factor=64", "max_o=4"},
       int8_tensor_recipe()},
      {"faults",
       "FP8 with one scale per tensor and INJECTED faults (saturate, overflow)",
       {"recipe=fp8-tensorwise", "faults=saturate overflow", "max_o=3"}},
  };
  return all;
}

const Regime& find_regime(std::string_view name) {
  const std::vector<Regime>& all = regimes();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Regime& regime) { return regime.name == name; });
  if (found == all.end()) {
    throw Error(
        fmt::format("no regime is named {}; there are {}, and all{}", io::in_quotes(name), names_of(all),
                    did_you_mean(name, all, [](const Regime& regime) { return std::string_view(regime.name); })));
  }
  return *found;
}

const std::vector<std::string>& no_budget() {
  static const std::vector<std::string> texts{"max_o=1000000", "max_cost=1", "group_max=0"};
  return texts;
}

std::vector<Arm> common_arms(const std::string& low, const std::string& gnmr) {
  const std::vector<std::string> fixed{"controller=watch", "selector=norms", "coarse_error=0"};
  const auto always_high = [&](const char* globs) {
    std::vector<std::string> texts = fixed;
    texts.push_back(fmt::format("always_high={}", globs));
    return texts;
  };
  const std::vector<std::string> known{"controller=gnmr", "oracle=true", "granularity=layer", "selector=norms",
                                       "coarse_error=0"};
  std::vector<std::string> unlimited = known;
  unlimited.insert(unlimited.end(), no_budget().begin(), no_budget().end());
  return {
      {"no-faults",
       "no faults",
       "The recipe without injected faults; the controller only watches: what the faults cost",
       {"controller=watch", "selector=norms", "coarse_error=0", "faults=", "harm=false"}},
      {"oracle", "oracle", "Layers with an injected fault are in recovery, known beforehand, within the budget", known},
      {"oracle-unlimited", "oracle, no budget", "The same without a budget", unlimited},
      {"evidence-fixed",
       "evidence, fixed limit",
       "What quantization did to operands decides by a fixed limit per tensor, four times the format's own error, and "
       "the step runs again with these units high (docs/rivals.md)",
       {"controller=gnmr", "selector=evidence", "evidence_from=casts", "guard=replay", "error_factor=1e30",
        "coarse_error=0", "refresh=0"}},
      {"patrol-replay",
       "patrol + replay",
       "The patrol's errors decide, and the step runs again with these units high: no norms, trial, standing recovery "
       "or refresh",
       {"controller=gnmr", "selector=evidence", "evidence_from=patrol", "guard=replay", "coarse_error=0", "refresh=0"}},
      {"standing",
       "standing only",
       "Standing recovery alone: units that are always far worse than the others",
       {"controller=gnmr", "selector=norms", "tau=1e30", "delta_tau=1e30", "fall_tau=0", "refresh=0"}},
      {"refresh",
       "refresh only",
       "Scales of delayed scaling that no longer fit are renewed; no unit recovers",
       {"controller=gnmr", "selector=norms", "coarse_error=0", "max_o=0"}},
      {"random-total",
       "random units, total",
       "Units chosen at random, as often high as all of GNMR with the same seed, its reruns included",
       {"controller=gnmr", "selector=norms", "coarse_error=0", "refresh=0"},
       ArmRule::random_total,
       gnmr},
      {"down-high", "`down` high", "The layers named `down` always in high precision, a rule that people use",
       always_high("*.down*")},
      {"down-o-high", "`down` and `o` high", "The layers named `down` and `o` always in high precision",
       always_high("*.down* *.o*")},
      {"ends-high", "ends high", "The first and the last block always in high precision, no detector", fixed,
       ArmRule::ends_high, low},
      {"late-high", "last 15% high",
       "Everything in high precision in the last 15% of the steps, a rule that people use", fixed, ArmRule::late_high},
  };
}

const std::vector<Arm>& stress_arms() {
  static const std::vector<Arm> all = [] {
    std::vector<Arm> arms{
        {"high",
         "high precision",
         "Every GEMM in high precision; the controller only watches",
         {"recipe=none", "controller=watch", "faults="}},
        {"low",
         "low precision",
         "The regime's recipe everywhere; the controller only watches",
         {"controller=watch", "selector=norms", "coarse_error=0"}},
        {"gnmr",
         "GNMR",
         "Units at fault recover in high precision; the default preset, with trials",
         {"controller=gnmr"}},
        {"paper", "GNMR, paper", kPaperAbout, {"controller=gnmr", "preset=paper", "refresh=0"}},
        {"random",
         "random units",
         "As many units in recovery as GNMR had with the same seed, chosen at random",
         {},
         ArmRule::random_units,
         "gnmr"},
        {"norms",
         "GNMR, norms",
         "GNMR without trials: units at risk by their norms recover",
         {"controller=gnmr", "selector=norms", "coarse_error=0", "refresh=0"}},
        {"acute",
         "GNMR, acute only",
         "GNMR without standing recovery and refresh: only units with sudden trouble recover",
         {"controller=gnmr", "coarse_error=0", "refresh=0"}},
    };
    const std::vector<Arm> common = common_arms("low", "gnmr");
    arms.insert(arms.end(), common.begin(), common.end());
    return arms;
  }();
  return all;
}

std::vector<Arm> choose_arms(const std::vector<Arm>& all, std::span<const std::string> names) {
  const auto named = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::vector<Arm> changed;
  for (const std::string& name : names) {
    if (name == kAllArms || contains(all, name)) continue;
    const std::size_t end = std::min(name.find(kParameters), name.size());
    const auto plain =
        std::find_if(all.begin(), all.end(), [&](const Arm& arm) { return arm.name == name.substr(0, end); });
    if (end == name.size() || plain == all.end()) {
      throw Error(fmt::format("no arm is named {}; there are {}{}", io::in_quotes(name), names_of(all),
                              did_you_mean(name, all, [](const Arm& arm) { return std::string_view(arm.name); })));
    }
    if (!contains(changed, name)) changed.push_back(with_other_settings(*plain, name, name.substr(end + 1)));
  }
  std::vector<Arm> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
               [&](const Arm& arm) { return named(kAllArms) || named(arm.name); });
  chosen.insert(chosen.end(), changed.begin(), changed.end());
  for (const Arm& arm : chosen) {
    if (arm.needs.empty() || contains(chosen, arm.needs)) continue;
    throw Error(fmt::format("the arm {} needs the arm {} too", arm.name, arm.needs));
  }
  return chosen;
}

std::vector<Arm> choose_arms(std::span<const std::string> names) { return choose_arms(stress_arms(), names); }

// Many short sequences make norms that are steady enough for one layer's fault to show, and a learning rate at
// which a seed decides little: with 8 sequences of 128 tokens and a rate of 0.003 two runs differ by as much as a fault
// costs.
const std::vector<std::string>& stress_texts() {
  static const std::vector<std::string> texts{
      "model=nano",           "steps=400",         "batch=64",      "sequence=32",    "lr=0.001",
      "min_lr=0.02",          "warmup=40",         "fault_from=60", "eval_every=100", "eval_batches=16",
      "checkpoint_every=100", "keep_checkpoints=1"};
  return texts;
}

const std::vector<Arm>& demo_arms() {
  static const std::vector<Arm> all{
      {"high", "high precision", "Every GEMM in high precision", {"recipe=none", "controller=watch", "faults="}},
      {"low",
       "FP8",
       "FP8 with injected faults; the controller only watches",
       {"controller=watch", "selector=norms", "coarse_error=0"}},
      {"paper", "FP8 + paper", kPaperAbout, {"controller=gnmr", "preset=paper"}},
      {"gnmr", "FP8 + GNMR", "The same, with the default preset", {"controller=gnmr", "evidence=true"}},
      {"healthy",
       "FP8 + GNMR, healthy",
       "No faults: what recovery does where nothing is wrong",
       {"controller=gnmr", "faults="},
       ArmRule::apart},
      {"int4",
       "INT4 activations",
       "No faults: activations in 4-bit integers, which lose by themselves; the controller only watches",
       {"recipe=int4-act", "faults=", "controller=watch", "selector=norms", "coarse_error=0"},
       ArmRule::apart},
      {"int4-gnmr",
       "INT4 + GNMR",
       "The same with the default preset and a budget of four units",
       {"recipe=int4-act", "faults=", "controller=gnmr", "max_o=4"},
       ArmRule::apart},
  };
  return all;
}

const std::vector<std::string>& demo_texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all = stress_texts();
    all.insert(all.end(), {"recipe=fp8-tensorwise", "faults=saturate overflow", "max_o=3"});
    return all;
  }();
  return texts;
}

}  // namespace gnmr::lab
