// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/run/control_file.h"
#include "gnmr/run/control_signals.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using gnmr::test::error_of;
using gnmr::test::put_file;
using gnmr::test::TemporaryFolder;

TEST(ControlFile, TellsEachWordOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.file("control");
  ControlFile control(path);
  EXPECT_FALSE(control.poll());
  put_file(path, "  high and more\n");
  auto news = control.poll();
  ASSERT_TRUE(news);
  EXPECT_EQ(news->mode, Mode::high);
  EXPECT_EQ(news->note, "");
  EXPECT_FALSE(control.poll());
  // As large as the next, and written within the clock's grain.
  put_file(path, "watch\n");
  EXPECT_EQ(control.poll()->mode, Mode::watch);
  put_file(path, "armed\n");
  EXPECT_EQ(control.poll()->mode, Mode::armed);
  EXPECT_FALSE(control.poll());
}

TEST(ControlFile, AWordHoldsUntilAnotherIsWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.file("control");
  ControlFile control(path);
  put_file(path, "high");
  EXPECT_TRUE(control.poll());
  put_file(path, "");
  EXPECT_FALSE(control.poll());
  std::filesystem::remove(path);
  EXPECT_FALSE(control.poll());
  // The same word again is news: a signal may have changed the mode in between.
  put_file(path, "high");
  EXPECT_EQ(control.poll()->mode, Mode::high);
}

TEST(ControlFile, ANoteSaysWhatIsAllowed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("control");
  ControlFile control(path);
  put_file(path, "off\n");
  const auto news = control.poll();
  ASSERT_TRUE(news);
  EXPECT_FALSE(news->mode);
  EXPECT_EQ(news->note, path + ": expected armed, watch or high, got \"off\"; nothing changes");
  EXPECT_FALSE(control.poll());
}

TEST(ControlFile, WhatIsNoFileIsPassedOver) {
  const TemporaryFolder folder;
  const std::string path = folder.file("control");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ControlFile control(path);
  EXPECT_NE(control.poll()->note, "");
  EXPECT_FALSE(control.poll());
}

TEST(ControlFile, IsNotReadAgainWhileItIsOld) {
  const TemporaryFolder folder;
  const std::string path = folder.file("control");
  put_file(path, "watch\n");
  const auto old = std::filesystem::last_write_time(path) - std::chrono::hours(1);
  std::filesystem::last_write_time(path, old);
  ControlFile control(path);
  EXPECT_TRUE(control.poll());
  // Content of the same size under the same time: only reading could tell.
  put_file(path, "armed\n");
  std::filesystem::last_write_time(path, old);
  EXPECT_FALSE(control.poll());
}

TEST(ControlSignals, SetModes) {
  ControlSignals signals;
  EXPECT_FALSE(signals.take_mode());
  ::raise(SIGUSR1);
  EXPECT_EQ(signals.take_mode(), Mode::watch);
  EXPECT_FALSE(signals.take_mode());
  ::raise(SIGUSR1);
  ::raise(SIGUSR2);
  EXPECT_EQ(signals.take_mode(), Mode::high);
  EXPECT_FALSE(signals.stop_requested());
}

TEST(ControlSignals, StopOnceThenEndAtOnce) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ControlSignals signals;
    ::raise(SIGTERM);
    if (!signals.stop_requested()) ::_exit(1);
    ::raise(SIGTERM);
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(ControlSignals, GiveBackWhatWasThere) {
  struct sigaction before {};
  ::sigaction(SIGINT, nullptr, &before);
  {
    const ControlSignals signals;
    EXPECT_NE(error_of<Error>([] { ControlSignals(); }), "");
    ::raise(SIGINT);
    EXPECT_TRUE(signals.stop_requested());
  }
  struct sigaction after {};
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  const ControlSignals again;
  EXPECT_FALSE(again.stop_requested());
}

}  // namespace
}  // namespace gnmr::run
