#include "part_process.hpp"

#include <csignal>
#include <fcntl.h>
#include <iostream>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "context.hpp"

namespace penstock::bench {

namespace {

// Longer than any part takes: one that hangs must not hold a run for ever.
constexpr int longest_answer_ms = 300'000;
// What an answer of numbers begins with: other lines are the reports of commands.
constexpr const char* number_mark = "numbers";

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
}

}  // namespace

part_process::part_process(std::vector<std::string> arguments, variables more) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0) require(-errno, "pipe");
    to_ = apps::unique_fd(in[1]);
    const apps::unique_fd its_input(in[0]);
    if (::pipe2(out, O_CLOEXEC) != 0) require(-errno, "pipe");
    from_ = apps::unique_fd(out[0]);
    const apps::unique_fd its_output(out[1]);
    arguments.insert(arguments.begin(), "penstock");
    for (char** variable = environ; *variable != nullptr; ++variable) more.emplace_back(*variable);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, its_input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, its_output, STDOUT_FILENO);
    int code = 0;
    {
        const apps::signal_pause until_noted;
        code = ::posix_spawn(&child_, "/proc/self/exe", &actions, nullptr,
                             pointers(arguments).data(), pointers(more).data());
        if (code == 0) noted_.process(child_);
    }
    ::posix_spawn_file_actions_destroy(&actions);
    require(-code, "a process of this program");
}

part_process::~part_process() { kill(); }

void part_process::kill() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    noted_.forget();
    child_ = -1;
}

void part_process::tell(const std::string& line) const {
    const std::string whole = line + "\n";
    if (::write(to_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size()))
        throw failure(-EPIPE, "a part of the case ended; its last lines say why");
}

std::string part_process::line() {
    for (;;) {
        if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
            std::string out = read_.substr(0, end);
            read_.erase(0, end + 1);
            return out;
        }
        pollfd look{from_, POLLIN, 0};
        const int ready = ::poll(&look, 1, longest_answer_ms);
        char bytes[4096];
        const ssize_t got = ready > 0 ? ::read(from_, bytes, sizeof bytes) : 0;
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            throw failure(-EPIPE, ready == 0 ? "a part of the case did not answer"
                                             : "a part of the case ended; its last lines say why");
        read_.append(bytes, static_cast<std::size_t>(got));
    }
}

std::vector<double> part_process::answer() {
    std::istringstream words(line());
    std::string mark;
    words >> mark;
    if (mark != number_mark) throw failure(-EIO, "a part of the case answered " + words.str());
    std::vector<double> out;
    for (double number = 0; words >> number;) out.push_back(number);
    return out;
}

void say_numbers(const std::vector<double>& numbers) {
    std::string text = number_mark;
    for (const double number : numbers) text += text_of(" %.9g", number);
    std::cout << text << std::endl;
}

void serve_lines(const std::function<void(const std::vector<std::string>&)>& act) {
    for (std::string text; std::getline(std::cin, text);) {
        std::istringstream in(text);
        std::vector<std::string> words;
        for (std::string word; in >> word;) words.push_back(word);
        act(words);
    }
}

}  // namespace penstock::bench
