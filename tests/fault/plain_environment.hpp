// Environments for tests that change a few calls: what they need not write again.
#pragma once

#include <cerrno>
#include <memory>
#include <string>

#include "os/env.hpp"

namespace penstock::fault {

// The files of the operating system by the calls that every environment has, and by no others: the
// rest answers as host::environment does.
class plain_files : public host::environment {
public:
    int find(int start, const std::string& path) override { return real_.find(start, path); }
    int real_path(int handle, std::string& out) override { return real_.real_path(handle, out); }
    int facts(int handle, host::file_facts& out) override { return real_.facts(handle, out); }
    int open_found(int handle) override { return real_.open_found(handle); }
    void close(int handle) override { real_.close(handle); }
    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override {
        return real_.read(fd, to, bytes, offset);
    }
    std::unique_ptr<host::io_engine> make_io_engine(bool want_uring, std::uint32_t depth,
                                                    std::string& why) override {
        return real_.make_io_engine(want_uring, depth, why);
    }

protected:
    explicit plain_files(host::environment& real = host::linux_environment()) : real_(real) {}

    host::environment& real_;
};

// Without any file.
class no_files : public host::environment {
public:
    int find(int, const std::string&) override { return -ENOSYS; }
    int real_path(int, std::string&) override { return -ENOSYS; }
    int facts(int, host::file_facts&) override { return -ENOSYS; }
    int open_found(int) override { return -ENOSYS; }
    void close(int) override {}
    std::int64_t read(int, std::byte*, std::uint64_t, std::uint64_t) override { return -ENOSYS; }
    std::unique_ptr<host::io_engine> make_io_engine(bool, std::uint32_t, std::string&) override {
        return nullptr;
    }
};

}  // namespace penstock::fault
