// The whole file in pieces by all threads, for the methods that bring it anew each time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/whole_file.hpp"
#include "graph_file.hpp"

namespace penstock::sssp {

inline constexpr std::uint64_t read_piece_bytes = 2u << 20;

class whole_reader {
public:
    whole_reader(const graph_file& graph, std::uint32_t threads)
        : path_(graph.path),
          real_path_(graph.real_path()),
          bytes_(graph.shape.file_bytes()),
          threads_(static_cast<std::uint32_t>(
              std::min<std::uint64_t>(threads, apps::pieces_of(bytes_, read_piece_bytes)))) {}
    ~whole_reader() {
        if (fd_ >= 0) ::close(fd_);
    }
    whole_reader(const whole_reader&) = delete;
    whole_reader& operator=(const whole_reader&) = delete;

    status open() {
        fd_ = ::open(real_path_.c_str(), O_RDONLY | O_CLOEXEC);
        return fd_ >= 0 ? status{}
                        : status{-errno, apps::shown(path_) + ": " + error_text(-errno) +
                                             "; name a graph that can be read"};
    }

    // take(thread, offset, bytes) for every piece, on all threads; end(thread) when there are no
    // more for a thread. Both give a status.
    template <typename Take, typename End>
    status each_piece(const Take& take, const End& end) const {
        std::atomic<std::uint64_t> next{0};
        apps::first_error errors;
        apps::on_threads(threads_, [&](std::uint32_t thread) {
            for (std::uint64_t at = next.fetch_add(read_piece_bytes); at < bytes_ && !errors.stop();
                 at = next.fetch_add(read_piece_bytes))
                errors.note(take(thread, at, std::min(read_piece_bytes, bytes_ - at)));
            errors.note(end(thread));
        });
        return errors.get();
    }
    status read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_exactly(path_, fd_, to, bytes, offset);
    }

    // Straight to where it belongs, in memory that the CPU reaches. Not inline: g++ and nvcc do not
    // agree on what a lambda in it that captures several things looks like, and the linker takes
    // either's.
    status read_all(std::byte* to) const;

    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t threads() const { return threads_; }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_, real_path_;
    std::uint64_t bytes_;
    std::uint32_t threads_;
    int fd_ = -1;
};

}  // namespace penstock::sssp
