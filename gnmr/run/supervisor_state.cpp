// SPDX-License-Identifier: Apache-2.0
// What a supervisor keeps in a checkpoint besides the controller's state: sections of the same file.
#include "gnmr/io/json.h"
#include "gnmr/io/plan_sections.h"
#include "gnmr/run/supervisor.h"

namespace gnmr::run {
namespace {

constexpr const char* kAuditSection = "audit";

std::deque<std::pair<std::int64_t, bool>> audited_steps(const std::string& text) {
  return io::read_json_list(text, io::damaged_section(kAuditSection), [](const io::JsonList& entries) {
    std::deque<std::pair<std::int64_t, bool>> audited;
    for (std::size_t index = 0; index < entries.size(); ++index) {
      const io::JsonList entry = entries.list(index);
      audited.emplace_back(entry.whole(0), entry.truth(1));
    }
    return audited;
  });
}

}  // namespace

std::string Supervisor::save() const {
  const SelfAuditState& audit = audit_.state();
  io::ExtraSections sections;
  if (!audit.occasions.empty()) sections.emplace(kAuditSection, io::json_line(audit.occasions));
  // With lag 0 batches have the numbers of their steps, unless an earlier run with lag 1 has left some waiting.
  const std::int64_t next_batch = controller_.plan_state().next_batch;
  io::add_plan(controller_, next_batch != 0 && next_batch != plan_.step + 1,
               {.whys = reasons_.waiting().by_batch,
                .called_why = reasons_.waiting().of_call,
                .disarm_step = audit.disarm_step,
                .disarm_why = audit.disarm_why},
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
    reasons_.restore({.by_batch = found.notes->whys, .of_call = found.notes->called_why});
  }
  audit_.restore(std::move(audit), controller_);
  last_decision_.clear();
  outcome_ = {};
  alarm_ = {};
  plan_ = {};
  return report;
}

}  // namespace gnmr::run
