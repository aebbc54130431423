// SPDX-License-Identifier: Apache-2.0
// Work that may be shared among threads whose owner is the caller.
//
// Goals: layers without threads of their own; whoever has some (torch, a pool) passes them in. Non-goals: starting
// threads.
#pragma once

#include <cstddef>
#include <functional>

namespace gnmr {

/// Does a part of some work: the pieces from `first` to before `last`.
using WorkPart = std::function<void(std::size_t first, std::size_t last)>;

/// Calls a `WorkPart` so that each of `count` pieces is done once, on as many threads as it likes, and waits for all.
using ParallelFor = std::function<void(std::size_t count, const WorkPart& part)>;

/// All of it on the thread that asks.
inline void run_alone(std::size_t count, const WorkPart& part) { part(0, count); }

}  // namespace gnmr
