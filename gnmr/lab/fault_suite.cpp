// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_suite.h"

#include <fmt/format.h>

#include <algorithm>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/lab/experiment/fault_kinds.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/lab/suite.h"

namespace gnmr::lab {
namespace {

constexpr std::string_view kRequired = "required";
constexpr std::string_view kAll = "all";
constexpr std::string_view kRivals = "rivals";

const std::vector<std::string>& required_faults() {
  static const std::vector<std::string> names{"saturate", "overflow", "gradient-overflow", "wrong-rows"};
  return names;
}

// Larger than any ratio can be: a threshold that is never passed.
constexpr const char* kNeverByLevel = "tau=1e30";
constexpr const char* kNeverByRise = "delta_tau=1e30";
constexpr const char* kNeverByFall = "fall_tau=0";

std::vector<Arm> references() {
  return {{"high",
           "high precision",
           "Every GEMM in high precision, no faults; the controller only watches",
           {"recipe=none", "controller=watch", "selector=norms", "faults=", "harm=false"}},
          {"none",
           "no recovery",
           "The recipe with the faults; the controller only watches",
           {"controller=watch", "selector=norms", "coarse_error=0"}}};
}

std::vector<Arm> selectors() {
  return {{"paper",
           "paper",
           "The preset `paper`: the abstract's rule with public descriptions' values, not the paper's own",
           {"preset=paper"}},
          {"norms", "norms", "Norms decide which units recover", {"selector=norms", "coarse_error=0"}},
          {"evidence",
           "evidence of quantization",
           "What quantization did to operands decides, and the step is run again with these units high (as "
           "TransformerEngine's "
           "AutoswitchGemm is proposed to)",
           {"selector=evidence", "evidence_from=casts", "guard=replay"}},
          {"patrol",
           "patrol",
           "The patrol's errors decide, without alarm or trial",
           {"selector=evidence", "evidence_from=patrol"}},
          {"trial", "trial", "An alarm, a trial, the units whose low paths are off", {"selector=trial"}},
          {"random",
           "random units",
           "As many units in recovery as `trial` had with the same seed, chosen at random",
           {"selector=norms", "coarse_error=0"},
           ArmRule::random_units,
           "trial"}};
}

std::vector<Arm> rivals() {
  std::vector<Arm> arms;
  for (const char* const name : {"zclip", "adagc", "stable-spam", "olmo-skip"}) {
    arms.push_back(
        {name,
         name,
         "What others do to gradients, no recovery (docs/rivals.md)",
         {fmt::format("rival={}", name), "controller=watch", "selector=norms", "coarse_error=0", "harm=false"}});
  }
  return arms;
}

std::vector<Arm> guards() {
  std::vector<Arm> arms;
  const auto add = [&](const std::string& guard, const char* about) {
    arms.push_back(
        {"norms-" + guard, "norms + " + guard, about, {"selector=norms", "coarse_error=0", "guard=" + guard}});
  };
  add("clip", "Norms; the gradients of the candidates are clipped to their mean");
  add("skip", "Norms; an alarmed step has no update");
  add("replay", "Norms; a step with an admission is run again with the admitted units high");
  return arms;
}

/// `trial` with one thing changed. What norms say matters where the patrol does not answer them: those have none.
std::vector<Arm> ablations() {
  std::vector<Arm> arms;
  const auto add = [&](const char* name, const char* about, std::vector<std::string> texts) {
    texts.insert(texts.begin(), "selector=trial");
    arms.push_back({name, name, about, std::move(texts)});
  };
  add("trial-no-patrol", "`trial`; nothing is measured beside a step", {"patrol=0"});
  add("gnmr-only", "no patrol; norms alarm by GNMR alone, not by rise or fall",
      {"patrol=0", kNeverByRise, kNeverByFall});
  add("delta-only", "no patrol; norms alarm by Delta-GNMR alone", {"patrol=0", kNeverByLevel, kNeverByFall});
  add("fall-only", "no patrol; norms alarm by Fall-GNMR alone", {"patrol=0", kNeverByLevel, kNeverByRise});
  add("trial-no-fall", "no patrol; norms do not alarm by Fall-GNMR", {"patrol=0", kNeverByFall});
  add("fixed", "no patrol; thresholds of norms that do not follow their noise", {"patrol=0", "noise_factor=0"});
  add("no-cap", "no patrol; plain history of norms", {"patrol=0", "mean_cap=0"});
  add("no-trial-cap", "`trial`; as many reruns as are asked for", {"max_trials=100"});
  add("no-lock", "`trial`; a recovery lasts one step", {"lock_steps=1", "max_lock_steps=0"});
  add("no-budget", "`trial`; as many units in recovery as ask for it", no_budget());
  return arms;
}

/// Takes `strength=4` or `layers=3` of a subject's name.
void change_subject(FaultSubject& subject, std::string_view change) {
  const std::size_t equals = std::min(change.find('='), change.size());
  const std::string_view name = change.substr(0, equals);
  const std::string_view value = change.substr(std::min(equals + 1, change.size()));
  if (name == "strength" && io::parse_number(value, subject.strength) && subject.strength >= 1) {
    subject.texts.push_back(fmt::format("fault_strength={}", value));
    return;
  }
  if (name == "layers" && value == kAll) {
    subject.layers = kAllLayers;
  } else if (name != "layers" || !io::parse_whole(value, subject.layers) || subject.layers < 1) {
    throw Error(fmt::format("{}: expected strength=X, from 1 on, or layers=N or all", io::in_quotes(change)));
  }
  subject.texts.push_back(fmt::format("fault_layers={}", subject.layers));
  // Each faulty layer would be measured in a run of the step of its own.
  if (subject.layers > 1) subject.texts.emplace_back("harm=false");
}

}  // namespace

FaultSubject fault_subject(std::string_view name) {
  if (name == kNoFault) return {.name = kNoFault, .folder = kNoFault, .texts = {"faults=", "harm=false"}};
  const std::string_view kind = name.substr(0, name.find(','));
  const std::optional<FaultChoice> choice = parse_fault(kind);
  if (!choice) {
    throw Error(fmt::format("no fault is named {}: expected {}, none, required or all{}", io::in_quotes(kind),
                            expected_fault(),
                            did_you_mean(kind.substr(0, kind.find(':')), fault_kinds(),
                                         [](const FaultKindSpec& spec) { return spec.name; })));
  }
  FaultSubject subject{.name = std::string(name),
                       .folder = std::string(name),
                       .site = std::string(to_string(site_of(choice->kind))),
                       .texts = {fmt::format("faults={}", kind)}};
  if (!has_measurable_harm(choice->kind)) {
    // What is wrong is the history of delayed scaling.
    subject.texts.insert(subject.texts.end(), {"recipe=fp8-delayed", "harm=false"});
  }
  for (char& letter : subject.folder) {
    if (letter == ':' || letter == ',' || letter == '=') letter = '-';
  }
  for (std::string_view rest = name.substr(kind.size()); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view change = rest.substr(0, rest.find(','));
    change_subject(subject, change);
    rest.remove_prefix(change.size());
  }
  return subject;
}

std::vector<std::string> swept_faults(std::span<const std::string> names, std::span<const std::string> strengths,
                                      std::span<const std::string> layers) {
  std::vector<std::string> swept;
  const auto endings = [](std::string_view what, std::span<const std::string> values) {
    std::vector<std::string> texts;
    for (const std::string& value : values) texts.push_back(fmt::format(",{}={}", what, value));
    if (texts.empty()) texts.emplace_back();
    return texts;
  };
  for (const FaultSubject& subject : fault_subjects(names)) {
    if (subject.name == kNoFault) {
      swept.push_back(subject.name);
      continue;
    }
    for (const std::string& many : endings("layers", layers)) {
      for (const std::string& strong : endings("strength", strengths)) swept.push_back(subject.name + strong + many);
    }
  }
  return swept;
}

std::vector<FaultSubject> fault_subjects(std::span<const std::string> names) {
  std::vector<FaultSubject> subjects;
  const auto add = [&](std::string_view name) {
    const bool there = std::any_of(subjects.begin(), subjects.end(),
                                   [&](const FaultSubject& subject) { return subject.name == name; });
    if (!there) subjects.push_back(fault_subject(name));
  };
  for (const std::string& name : names) {
    if (name == kRequired) {
      for (const std::string& kind : required_faults()) add(kind);
    } else if (name == kAll) {
      for (const FaultKindSpec& spec : fault_kinds()) add(spec.name);
    } else {
      add(name);
    }
  }
  return subjects;
}

std::string subject_title(const FaultSubject& subject) {
  if (subject.site.empty()) return subject.name;
  std::string title = subject.name.substr(0, subject.name.find(','));
  if (subject.strength > 0) title += fmt::format(", strength {}", subject.strength);
  if (subject.layers == kAllLayers) title += ", all layers";
  if (subject.layers > 0 && subject.layers < kAllLayers)
    title += ", " + counted(static_cast<std::uint64_t>(subject.layers), "layer");
  return fmt::format("{} ({})", title, subject.site);
}

const std::vector<Arm>& fault_arms() {
  static const std::vector<Arm> all = [] {
    std::vector<Arm> arms;
    for (const auto& part :
         {references(), selectors(), rivals(), common_arms("none", "trial"), guards(), ablations()}) {
      arms.insert(arms.end(), part.begin(), part.end());
    }
    return arms;
  }();
  return all;
}

const std::vector<std::string>& required_fault_arms() {
  static const std::vector<std::string> names{"high",   "none",  "paper", "norms",     "evidence", "trial",
                                              "random", "zclip", "adagc", "olmo-skip", "oracle"};
  return names;
}

std::vector<Arm> choose_fault_arms(std::span<const std::string> names) {
  std::vector<std::string> wanted;
  for (const std::string& name : names) {
    if (name == kRequired) {
      wanted.insert(wanted.end(), required_fault_arms().begin(), required_fault_arms().end());
    } else if (name == kRivals) {
      for (const Arm& arm : rivals()) wanted.push_back(arm.name);
    } else {
      wanted.push_back(name);
    }
  }
  return choose_arms(fault_arms(), wanted);
}

const std::vector<std::string>& fault_texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all = stress_texts();
    all.insert(all.end(), {"steps=300", "recipe=fp8-tensorwise", "fault_from=60", "fault_every=20", "fault_steps=5",
                           "fault_strength=64", "harm=true", "eval_every=0", "checkpoint_every=100"});
    return all;
  }();
  return texts;
}

const std::vector<std::string>& fault_option_texts() {
  static const std::vector<std::string> texts{"max_o=3"};
  return texts;
}

}  // namespace gnmr::lab
