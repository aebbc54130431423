// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/decision_checksum.h"

#include <string>

#include "gnmr/io/checksum.h"

namespace gnmr::run {
namespace {

/// Values one after the other, least significant byte first, so that the bytes are the same on every machine.
class Bytes {
 public:
  void number(std::uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>((value >> shift) & 0xff));
  }

  void units(std::span<const UnitIndex> indices) {
    number(indices.size());
    for (const UnitIndex unit : indices) number(unit);
  }

  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }

  std::uint32_t checksum() const {
    const std::uint64_t whole = io::crc64(bytes_);
    return static_cast<std::uint32_t>(whole ^ (whole >> 32));
  }

 private:
  std::string bytes_;
};

}  // namespace

std::uint32_t checksum_of(const Outcome& outcome) {
  const Decision& decision = outcome.decision;
  Bytes bytes;
  bytes.number(static_cast<std::uint64_t>(decision.step));
  bytes.number(static_cast<std::uint64_t>(outcome.verdict));
  bytes.number(static_cast<std::uint64_t>(outcome.action));
  bytes.number(decision.common ? 1 : 0);
  for (const auto& units :
       {decision.recovered, decision.admitted, decision.denied, decision.futile, decision.released}) {
    bytes.units(units);
  }
  return bytes.checksum();
}

std::uint32_t checksum_of(const CommonState& state) {
  Bytes bytes;
  bytes.number(state.decision);
  bytes.units(state.high);
  bytes.number(state.mode);
  for (const SwitchRule& rule : state.rules) {
    bytes.text(rule.glob);
    bytes.number(static_cast<std::uint64_t>(rule.path));
    bytes.number(static_cast<std::uint64_t>(rule.first_step));
    bytes.number(static_cast<std::uint64_t>(rule.last_step));
  }
  return bytes.checksum();
}

void LastDecision::reported(const ReportedRun& run) {
  if (run.is_decided) checksum_ = checksum_of(run.outcome);
}

}  // namespace gnmr::run
