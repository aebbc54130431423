// SPDX-License-Identifier: Apache-2.0
// Launches and copies that are recorded once, and go to the device in one call. For .cu files of this layer.
//
// Goals: a recording that fails leaves nothing behind. Non-goals: what torch allocates (gnmr/torch/cuda_graph.h).
#pragma once

#include <utility>

#include "gnmr/kernels/cuda_memory.h"

namespace gnmr::kernels {

/// A stream on which nothing runs: launches are recorded there.
class RecordingStream {
 public:
  RecordingStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  RecordingStream(const RecordingStream&) = delete;
  RecordingStream& operator=(const RecordingStream&) = delete;
  ~RecordingStream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// What was recorded.
class LaunchGraph {
 public:
  LaunchGraph() = default;
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;
  ~LaunchGraph() { clear(); }

  /// Records what `work` queues on the stream, in the place of what was recorded before. It must allocate nothing and
  /// wait for nothing. Throws what `work` throws.
  template <class Work>
  void record(const RecordingStream& on, Work work) {
    clear();
    check_cuda(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      work(on.get());
    } catch (...) {
      cudaStreamEndCapture(on.get(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check_cuda(cudaStreamEndCapture(on.get(), &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&launches_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }

  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(launches_, stream), "cudaGraphLaunch"); }

 private:
  void clear() {
    if (launches_ != nullptr) cudaGraphExecDestroy(std::exchange(launches_, nullptr));
  }

  cudaGraphExec_t launches_ = nullptr;
};

}  // namespace gnmr::kernels
