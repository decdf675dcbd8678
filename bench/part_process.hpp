// Another process of this program that does a part of a case: it does what it is told by a line on
// its standard input, and answers each with a line of numbers on its standard output.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/files.hpp"
#include "common/process.hpp"

namespace penstock::bench {

// In the environment of such a process: what it shall be. Only this program sets it.
inline constexpr const char* part_variable = "PENSTOCK_BENCH_PART";

class part_process {
public:
    using variables = std::vector<std::string>;  // "NAME=VALUE", before those of this process

    // This program with other arguments.
    part_process(std::vector<std::string> arguments, variables more);
    ~part_process();  // killed, if it has not ended
    part_process(const part_process&) = delete;
    part_process& operator=(const part_process&) = delete;

    void tell(const std::string& line) const;
    // The numbers of its next line; fails where none comes in time, or one that begins otherwise.
    std::vector<double> answer();
    // Any next line.
    std::string line();
    // SIGKILL; it is gone when this returns.
    void kill();

private:
    pid_t child_ = -1;
    apps::leftover noted_;  // for signals
    apps::unique_fd to_, from_;
    std::string read_;  // of its output, not taken yet
};

// In a part: says numbers, and takes lines until there are no more. `act` gets the words of a line.
void say_numbers(const std::vector<double>& numbers);
void serve_lines(const std::function<void(const std::vector<std::string>&)>& act);

}  // namespace penstock::bench
