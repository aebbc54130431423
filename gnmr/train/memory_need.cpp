// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/memory_need.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

#include "gnmr/core/error.h"

namespace gnmr::train {
namespace {

constexpr double kStateBytes = 16;     // per parameter: 4 + 4 + 8, or in bfloat16 2 + 2 + 4 + 8
constexpr double kLogitBytes = 2 * 4;  // float32, and its gradient
constexpr double kWeightBytes = 4;     // weights are made on the host, in float32
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::string gibibytes(double bytes) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.1f GiB", bytes / static_cast<double>(1LL << 30));
  return text.data();
}

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return kUnlimited;
}

/// A number from a file of the control group; unlimited where there is none (`max`, or no such file).
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : kUnlimited;
}

/// What a control group would give back if asked: pages of files, and the kernel's own caches.
std::int64_t reclaimable_memory(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  std::int64_t sum = 0;
  std::int64_t bytes = 0;
  while (file >> key >> bytes) {
    if (key == "active_file" || key == "inactive_file" || key == "slab_reclaimable") sum += bytes;
  }
  return sum;
}

/// What the process's control group (version 2) and those above it leave.
std::int64_t group_memory() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("0::/")) {
  }
  if (!line.starts_with("0::/")) return kUnlimited;
  std::int64_t least = kUnlimited;
  for (std::string group = line.substr(3);; group.resize(group.rfind('/'))) {
    if (group == "/") group.clear();
    const std::string folder = "/sys/fs/cgroup" + group;
    const std::int64_t limit = number_in(folder + "/memory.max");
    if (limit != kUnlimited) {
      const std::int64_t used = number_in(folder + "/memory.current") - reclaimable_memory(folder);
      least = std::min(least, std::max<std::int64_t>(limit - used, 1));
    }
    if (group.empty()) return least;
  }
}

}  // namespace

std::int64_t free_host_bytes() {
  const std::int64_t least = std::min(available_memory(), group_memory());
  return least == kUnlimited ? 0 : least;
}

std::int64_t free_device_bytes(const at::Device& device) {
  try {
    at::globalContext().lazyInitDevice(device.type());
    c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
    const c10::DeviceIndex index = device.has_index() ? device.index() : c10::DeviceIndex{0};
    const auto stats = allocator->getDeviceStats(index);
    const std::int64_t unused = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
    return static_cast<std::int64_t>(allocator->getMemoryInfo(index).first) + unused;
  } catch (const c10::Error&) {
    return 0;  // an allocator that does not say
  }
}

std::string MemoryNeed::text() const {
  std::array<char, 128> parts;
  std::snprintf(parts.data(), parts.size(), " (%.0f bytes for each of %.4g %s parameters, and the logits)", kStateBytes,
                parameters / (parameters < 1e9 ? 1e6 : 1e9), parameters < 1e9 ? "million" : "billion");
  return gibibytes(bytes()) + parts.data();
}

MemoryNeed memory_need(const models::LlamaConfig& config, double tokens) {
  MemoryNeed need = memory_need(static_cast<double>(models::parameter_count(config)));
  need.logits_bytes = tokens * static_cast<double>(config.vocabulary) * kLogitBytes;
  return need;
}

MemoryNeed memory_need(double parameters) {
  return {.parameters = parameters, .state_bytes = parameters * kStateBytes};
}

void check_memory(const std::string& model, const MemoryNeed& need, const at::Device& device) {
  const auto refuse = [&](const std::string& what, const std::string& where, double free) {
    throw Error("--model " + model + " does not fit in memory: it needs at least " + what + " on the " + where +
                ", of which " + gibibytes(free) + " are free; choose a smaller model, --batch or --sequence");
  };
  const double host_need = device.is_cpu() ? need.bytes() : need.parameters * kWeightBytes;
  const auto host_free = static_cast<double>(free_host_bytes());
  if (host_free > 0 && host_need > host_free)
    refuse(device.is_cpu() ? need.text() : gibibytes(host_need), "host", host_free);
  if (device.is_cpu()) return;
  const auto device_free = static_cast<double>(free_device_bytes(device));
  if (device_free > 0 && need.bytes() > device_free) refuse(need.text(), "GPU", device_free);
}

}  // namespace gnmr::train
