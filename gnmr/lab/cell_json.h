// SPDX-License-Identifier: Apache-2.0
// A cell's result as a JSON object, for files that hold more than one. Only for sources that link gnmr_json.
#pragma once

#include "gnmr/io/json.h"
#include "gnmr/lab/cell.h"

namespace gnmr::lab {

/// A result as an object.
io::OrderedJson cell_json(const CellResult& cell);

/// A result from such an object; keys that are not known are skipped. An `Error` names the key that is wrong.
CellResult cell_of(const io::JsonObject& object);

}  // namespace gnmr::lab
