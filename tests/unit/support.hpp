// What the tests share: a folder that goes away with the test, files with recognisable bytes, a
// small runtime.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/runtime_state.hpp"
#include "penstock/penstock.hpp"

namespace penstock::test {

class temporary_folder {
public:
    explicit temporary_folder(
        const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
        std::string name = (parent / "penstock-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) std::abort();
        path_ = std::filesystem::canonical(name);
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;

    [[nodiscard]] std::string operator/(const std::string& name) const {
        return (path_ / name).string();
    }
    [[nodiscard]] std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

// Byte `i` of a file made with `seed`: no two pages look alike, no short period.
PENSTOCK_HD inline std::uint8_t pattern_byte(std::uint64_t seed, std::uint64_t i) {
    return static_cast<std::uint8_t>(mix64(seed * 0x9e3779b97f4a7c15ull + i / 8) >> (8 * (i % 8)));
}

inline std::vector<std::uint8_t> pattern(std::uint64_t seed, std::uint64_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) out[i] = pattern_byte(seed, i);
    return out;
}

// What most tests set as page_bytes.
inline constexpr std::uint64_t page = 4096;

inline std::vector<std::uint8_t> bytes_on_disk(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::vector<std::uint8_t>& bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(out.good()) << path;
}

// A file that was written a moment ago is read anew at its next open; wait until it counts as
// settled.
inline void let_files_settle() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

// How many caches a runtime of the tests has, unless a test says so: PENSTOCK_TEST_CACHES, or one.
// It is "none" where the file is left out of the tests with two caches (tests/CMakeLists.txt).
inline int usual_caches() {
    const char* const text = std::getenv("PENSTOCK_TEST_CACHES");
    if (text == nullptr) return 1;
    EXPECT_STRNE(text, "none") << "this file must not stand behind OF_ONE_CACHE in CMakeLists.txt";
    return std::max(1, std::atoi(text));
}

// What a message of the first cache of a runtime begins with: nothing if it has no other.
inline std::string label_of_cache() { return usual_caches() > 1 ? "cache 0: " : ""; }

// cpu back end, tiny, quiet, with its root at the folder; of so many caches.
inline options small_options(const temporary_folder& folder, int caches = usual_caches()) {
    options o;
    o.where = backend::cpu;
    for (int i = 0; caches > 1 && i < caches; ++i) o.devices.push_back(i);
    o.page_bytes = 4096;
    o.cache_bytes = 64 * 4096;
    o.table_bytes = 1 << 20;
    o.max_files = 64;
    o.staging_bytes = 1 << 20;
    o.host_wait_ms = 20000;  // tests run on busy machines
    o.roots = {folder.path()};
    o.log = [](const std::string&) {};
    return o;
}

inline std::unique_ptr<runtime> make_runtime(const options& o,
                                             const host::runtime_hooks& hooks = {}) {
    std::unique_ptr<runtime> rt;
    const status s = runtime::make(o, hooks, rt);
    EXPECT_TRUE(s.ok()) << s.message;
    return rt;
}

}  // namespace penstock::test
