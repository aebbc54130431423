// SPDX-License-Identifier: Apache-2.0
// What a supervisor keeps in a checkpoint besides the controller's state: sections of the same file.
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"
#include "gnmr/io/plan_sections.h"
#include "gnmr/run/supervisor.h"

namespace gnmr::run {
namespace {

using nlohmann::json;

constexpr const char* kAuditSection = "audit";

[[noreturn]] void refuse_audit() {
  throw Error("controller state: the section " + std::string(kAuditSection) + " is damaged");
}

std::deque<std::pair<std::int64_t, bool>> audited_steps(const std::string& text) {
  const auto entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_array()) refuse_audit();
  std::deque<std::pair<std::int64_t, bool>> audited;
  for (const auto& entry : entries) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() || !entry[1].is_boolean()) {
      refuse_audit();
    }
    audited.emplace_back(entry[0].get<std::int64_t>(), entry[1].get<bool>());
  }
  return audited;
}

}  // namespace

std::string Supervisor::save() const {
  const SelfAuditState& audit = audit_.state();
  io::ExtraSections sections;
  if (!audit.occasions.empty()) sections.emplace(kAuditSection, json(audit.occasions).dump());
  // With lag 0 batches have the numbers of their steps, unless an earlier run with lag 1 has left some waiting.
  const std::int64_t next_batch = controller_.plan_state().next_batch;
  io::add_plan(
      controller_, next_batch != 0 && next_batch != plan_.step + 1,
      {.whys = whys_, .called_why = called_why_, .disarm_step = audit.disarm_step, .disarm_why = audit.disarm_why},
      sections);
  return io::encode_state(controller_.save(), sections);
}

RestoreReport Supervisor::restore(const std::string& state_bytes) {
  const io::LoadedState loaded = io::decode_state(std::as_bytes(std::span(state_bytes)));
  const io::LoadedPlan found = io::read_plan(loaded.extra_sections, controller_.units());
  SelfAuditState audit{.disarm_step = audit_.state().disarm_step, .disarm_why = audit_.state().disarm_why};
  const auto occasions = loaded.extra_sections.find(kAuditSection);
  if (occasions != loaded.extra_sections.end()) audit.occasions = audited_steps(occasions->second);
  const RestoreReport report = controller_.restore(loaded.state, found.plan);
  if (found.notes) {
    audit.disarm_step = found.notes->disarm_step;
    audit.disarm_why = found.notes->disarm_why;
    whys_ = found.notes->whys;
    called_why_ = found.notes->called_why;
  }
  audit_.restore(std::move(audit));
  decision_checksum_ = 0;
  outcome_ = {};
  alarm_ = {};
  plan_ = {};
  return report;
}

}  // namespace gnmr::run
