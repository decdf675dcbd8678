// The other side of update.hpp: starting the updater and waiting for it.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/leftover.hpp"
#include "common/message.hpp"
#include "update.hpp"

namespace penstock::sssp {

namespace {

constexpr auto longest_update = std::chrono::minutes(10);
constexpr auto between_looks = std::chrono::microseconds(200);

std::string text_of_percent(double percent) {
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", percent);
    return text;
}

status start(const update_request& what, pid_t& child) {
    std::vector<std::string> words = {"penstock-sssp",
                                      "update",
                                      what.file,
                                      "--percent",
                                      text_of_percent(what.percent),
                                      "--seed",
                                      std::to_string(what.seed),
                                      "--round",
                                      std::to_string(what.round),
                                      "--by",
                                      what.by_store ? "store" : "write",
                                      "--workers",
                                      std::to_string(what.threads)};
    std::vector<char*> arguments;
    for (std::string& one : words) arguments.push_back(one.data());
    arguments.push_back(nullptr);
    const int code =
        ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
    return code == 0 ? status{}
                     : status{-code, "the updater cannot be started: " + error_text(-code) +
                                         "; end some programs"};
}

// It is gone when this returns.
status kill_it(pid_t child, status why) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return why;
}

}  // namespace

status run_updater(const update_request& what, const std::function<bool()>& interrupted) {
    pid_t child = -1;
    apps::leftover noted;
    {
        const apps::signal_pause until_noted;
        if (status s = start(what, child); !s) return s;
        noted.process(child);
    }
    const auto deadline = std::chrono::steady_clock::now() + longest_update;
    int ended = 0;
    for (;;) {
        const pid_t found = ::waitpid(child, &ended, WNOHANG);
        if (found == child) break;
        if (found < 0 && errno != EINTR)
            return {-errno, "the updater: " + error_text(-errno) +
                                "; let nothing else wait for this program's children"};
        if (interrupted()) return kill_it(child, {-ECANCELED, "interrupted; nothing was written"});
        if (std::chrono::steady_clock::now() > deadline)
            return kill_it(child, {-ETIMEDOUT, "the updater took more than ten minutes for " +
                                                   apps::shown(what.file) +
                                                   "; use a smaller graph, or change less"});
        std::this_thread::sleep_for(between_looks);
    }
    if (interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return {};
    if (WIFEXITED(ended))
        return {-EIO, "the updater failed, and said why above; see that the graph can be written"};
    return {-EIO,
            "the updater was ended by signal " + std::to_string(WTERMSIG(ended)) + "; run again"};
}

}  // namespace penstock::sssp
