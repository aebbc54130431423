// SPDX-License-Identifier: Apache-2.0
// Work on a CUDA device that is recorded once and then launched as a whole: torch's CUDA graphs behind a plain
// interface.
//
//   const GraphPool pool;
//   const CudaGraph graph(device, pool, [&] { result.copy_(layer->forward(input)); });   // nothing has run yet
//   input.copy_(...); graph.replay();                                                    // result is there
//
// Goals: the one place of the project that includes CUDA's headers by way of torch, so that everything else builds with
// the CPU's torch; a capture that fails leaves torch's allocator as it was. Non-goals: what is captured and when
// (gnmr/models/block_graphs.h), other devices. Without CUDA's headers a stub is built: nothing can be captured.
//
// What is captured has the addresses, shapes and decisions of the host that it had at capture. It must not wait for the
// device, nor copy from memory that is not pinned.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace gnmr::nn {

/// Whether work on this device can be captured now: this build can, and nobody is capturing on torch's current stream.
bool can_capture(const c10::Device& device);

/// Memory that captured work takes what it allocates from. What one graph has freed at its end of capture the next one
/// of the same pool takes again, so graphs of a pool must not run side by side, and results must be copied before
/// another one runs unless the tensors that hold them were kept. It lives as long as a graph of it.
class GraphPool {
 public:
  /// A pool of its own. Throws `Error` in a build that cannot capture.
  GraphPool();

  std::pair<std::uint64_t, std::uint64_t> id() const { return id_; }

 private:
  std::pair<std::uint64_t, std::uint64_t> id_;
};

/// Captured work.
class CudaGraph {
 public:
  /// Captures what `work` does on torch's current stream, which is one of its own meanwhile; also what the threads of
  /// autograd do there. Throws what `work` throws, or what torch says of a capture that cannot be.
  CudaGraph(const c10::Device& device, const GraphPool& pool, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Launches it on torch's current stream; nothing waits.
  void replay() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bytes of device memory that torch's allocator has.
struct DeviceMemory {
  std::int64_t allocated = 0;      // by tensors
  std::int64_t reserved = 0;       // from the device, pools of graphs included
  std::int64_t most_reserved = 0;  // since the last `release_unused_memory`
};

/// What it has now; zeros in a build that cannot capture.
DeviceMemory device_memory(const c10::Device& device);

/// Gives back what no tensor and no graph holds, and begins to look for the most anew. Waits for the device.
void release_unused_memory(const c10::Device& device);

}  // namespace gnmr::nn
