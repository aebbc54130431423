// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/step.h"

namespace gnmr {

const char* to_string(Mode mode) {
  switch (mode) {
    case Mode::armed:
      return "armed";
    case Mode::watch:
      return "watch";
    case Mode::high:
      return "high";
  }
  return "armed";
}

const char* to_string(PassKind pass) {
  switch (pass) {
    case PassKind::step:
      return "step";
    case PassKind::replay:
      return "replay";
    case PassKind::trial:
      return "trial";
  }
  return "step";
}

const char* to_string(Action action) {
  switch (action) {
    case Action::apply:
      return "apply";
    case Action::hold:
      return "hold";
    case Action::rerun:
      return "rerun";
  }
  return "apply";
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::none:
      return "none";
    case Verdict::numeric:
      return "numeric";
    case Verdict::common:
      return "common";
    case Verdict::unlocated:
      return "unlocated";
  }
  return "none";
}

}  // namespace gnmr
