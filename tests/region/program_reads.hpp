// What a program reads through a mount of this process, without the mount.
#pragma once

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "region/programs.hpp"
#include "unit/support.hpp"

namespace penstock::test {

inline region::file_key key_of(int fd) {
    struct stat facts {};
    EXPECT_EQ(::fstat(fd, &facts), 0);
    return {facts.st_dev, facts.st_ino};
}

// As programs name it that use a mount of a runtime without a hub of its own.
inline region::client_file file_of(const region::file_key& key) {
    return {region::shared_files::of(host::hub::of_process()), key};
}

// `from_devices`: how much of it came from regions or caches.
inline std::vector<std::uint8_t> read_as_program(const region::file_key& file, int fd,
                                                 std::uint64_t offset, std::uint64_t count,
                                                 std::uint64_t& from_devices) {
    std::vector<std::uint8_t> out;
    const region::program_access access(file_of(file), region::program_access::kind::direct, offset,
                                        count);
    from_devices = access.read_devices(
        fd, offset, count, [&](const std::byte* from, std::uint64_t got, std::uint64_t) {
            const auto* const first = reinterpret_cast<const std::uint8_t*>(from);
            out.assign(first, first + got);
        });
    if (from_devices != 0) return out;
    EXPECT_TRUE(out.empty());
    out.resize(count);
    const ssize_t got = ::pread(fd, out.data(), count, static_cast<off_t>(offset));
    out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return out;
}

}  // namespace penstock::test
