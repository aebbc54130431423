// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/cuda_graph.h"

#include "gnmr/core/error.h"

#ifdef GNMR_HAVE_CUDA_GRAPHS

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>

namespace gnmr::nn {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// All captures of a device are on one stream: workspaces of cuBLAS belong to a stream, and each costs memory.
c10::cuda::CUDAStream capture_stream(const c10::Device& device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  return streams.emplace(device.index(), c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()))
      .first->second;
}

/// Memory that lies unused in torch's cache cannot be taken for a pool while a capture runs.
void make_room(const c10::Device& device) {
  constexpr std::size_t kEnoughShare = 8;
  const auto [free, total] = allocator::get()->getMemoryInfo(device.index());
  if (free < total / kEnoughShare) allocator::emptyCache();
}

/// Ends a capture that went wrong. torch gives up half-way where the stream's capture has become invalid: then its
/// allocators would go on asking whether an allocation belongs to it.
void abandon(at::cuda::CUDAGraph& graph, const c10::Device& device, c10::MempoolId_t pool) noexcept {
  const auto try_to = [](const auto& end) {
    try {
      end();
    } catch (...) {  // it had ended
    }
  };
  try_to([&] { graph.capture_end(); });
  try_to([&] { allocator::endAllocateToPool(device.index(), pool); });
  try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
}

c10::Device with_index(const c10::Device& device) {
  return device.has_index() ? device : c10::Device(device.type(), c10::cuda::current_device());
}

}  // namespace

struct CudaGraph::Impl {
  std::unique_ptr<at::cuda::CUDAGraph> graph = std::make_unique<at::cuda::CUDAGraph>();
};

bool can_capture(const c10::Device& device) {
  return device.is_cuda() && c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None;
}

GraphPool::GraphPool() : id_(at::cuda::graph_pool_handle()) {}

CudaGraph::CudaGraph(const c10::Device& any_device, const GraphPool& pool, const std::function<void()>& work)
    : impl_(std::make_unique<Impl>()) {
  const c10::Device device = with_index(any_device);
  make_room(device);
  const c10::cuda::CUDAStreamGuard on_capture_stream(capture_stream(device));
  const c10::MempoolId_t id{pool.id().first, pool.id().second};
  // Only this thread's calls are watched: autograd's threads add to the capture, and whatever other threads do with the
  // device is none of its business.
  try {
    impl_->graph->capture_begin(id, cudaStreamCaptureModeThreadLocal);
    work();
    impl_->graph->capture_end();
  } catch (...) {
    abandon(*impl_->graph, device, id);
    // Somebody may still look at it: it is left where it is.
    static_cast<void>(impl_->graph.release());
    throw;
  }
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::replay() const { impl_->graph->replay(); }

DeviceMemory device_memory(const c10::Device& device) {
  if (!device.is_cuda()) return {};
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator::getDeviceStats(with_index(device).index());
  return {.allocated = stats.allocated_bytes[kAll].current,
          .reserved = stats.reserved_bytes[kAll].current,
          .most_reserved = stats.reserved_bytes[kAll].peak};
}

void release_unused_memory(const c10::Device& device) {
  if (!device.is_cuda()) return;
  allocator::emptyCache();
  allocator::resetPeakStats(with_index(device).index());
}

}  // namespace gnmr::nn

#else

namespace gnmr::nn {

struct CudaGraph::Impl {};

bool can_capture(const c10::Device&) { return false; }

GraphPool::GraphPool() { throw Error("[graphs] this build cannot capture work: it was made without CUDA's headers"); }

CudaGraph::CudaGraph(const c10::Device&, const GraphPool&, const std::function<void()>&) {}

CudaGraph::~CudaGraph() = default;

void CudaGraph::replay() const {}

DeviceMemory device_memory(const c10::Device&) { return {}; }

void release_unused_memory(const c10::Device&) {}

}  // namespace gnmr::nn

#endif
