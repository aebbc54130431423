// SPDX-License-Identifier: Apache-2.0
#include "gnmr/engine_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::app {
namespace {

constexpr const char* kLibraryName = "libgnmr_engine.so";

std::vector<std::filesystem::path> candidates() {
  if (const char* const named = std::getenv("GNMR_ENGINE"); named != nullptr) return {named};
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder.parent_path() / "lib" / kLibraryName, folder / kLibraryName};
}

}  // namespace

run::Engine& load_engine() {
  // Threads that wait for each other should sleep: by default they spin, and where a core is shared with another
  // program (or another run) a step takes twenty times as long. It is read when the engine is loaded.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  std::string looked;
  for (const std::filesystem::path& path : candidates()) {
    if (!std::filesystem::exists(path)) {
      looked += (looked.empty() ? "" : ", ") + path.string();
      continue;
    }
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      throw Error("the training engine could not be loaded: " + std::string(why != nullptr ? why : "no reason given"));
    }
    auto* const open = reinterpret_cast<run::OpenEngine*>(::dlsym(library, run::kOpenEngineName));
    run::Engine* const engine = open != nullptr ? open(run::kEngineInterface) : nullptr;
    if (engine == nullptr)
      throw Error(path.string() + ": it was built from other sources than this program; `make build`");
    return *engine;
  }
  throw Error("the training engine is not there (looked for " + looked +
              "): it is built if a Python with torch is found; `pip install torch==2.13.0`, then `make build`");
}

}  // namespace gnmr::app
