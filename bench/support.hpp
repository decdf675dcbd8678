// What the benchmarks share: files, runtimes, clocks, and giving up with a message.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "penstock/penstock.hpp"
#include "result.hpp"

namespace penstock::bench {

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "bench: %s\n", what.c_str());
    std::exit(1);
}

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this process: user and system.
inline double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// A file whose i-th 8-byte word is mix64(i), a multiple of 8 MiB long; it stays in the operating system's page cache.
inline std::string make_file(const std::string& base, std::uint64_t bytes) {
    const std::string name = (std::filesystem::temp_directory_path() / base).string();
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<std::uint64_t> block(1u << 20);
    for (std::uint64_t at = 0; at < bytes; at += block.size() * 8) {
        for (std::size_t i = 0; i < block.size(); ++i) block[i] = mix64(at / 8 + i);
        if (::write(file, block.data(), block.size() * 8) != static_cast<ssize_t>(block.size() * 8)) fail("cannot write " + name);
    }
    ::close(file);
    return name;
}

inline std::unique_ptr<runtime> make_runtime(backend where, std::uint64_t cache_bytes, std::uint64_t page_bytes) {
    options o;
    if (const status s = options::from_environment(o); !s) fail(s.message);
    o.where = where;
    o.cache_bytes = cache_bytes;
    o.page_bytes = page_bytes;
    o.table_bytes = 512u << 20;
    std::unique_ptr<runtime> rt;
    if (const status s = runtime::create(o, rt); !s) fail(s.message);
    return rt;
}

#if defined(__CUDACC__)
inline void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(code));
}
#endif

}  // namespace penstock::bench
