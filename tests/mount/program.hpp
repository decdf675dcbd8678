// A program that knows nothing of Penstock and uses one file, by read and write or through a
// mapping: a process of its own, which does what it is told to.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace penstock::test {

class program {
public:
    enum class act : std::uint8_t {
        open,
        map,
        read,
        write,
        load,
        store,
        hammer,
        keep_mapping,
        close_file,
        end
    };
    struct order {
        act action = act::end;
        std::uint64_t offset = 0, value = 0, count = 0;
        char path[512] = {};
    };
    struct answer {
        std::int64_t code = 0;  // or a negative errno
        std::uint64_t value = 0;
    };

    // Made while the process has no threads that hold locks.
    program() {
        int down[2], up[2];
        if (::pipe(down) != 0 || ::pipe(up) != 0) std::abort();
        child_ = ::fork();
        if (child_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::close(down[1]);
            ::close(up[0]);
            serve(down[0], up[1]);
            ::_exit(0);
        }
        ::close(down[0]);
        ::close(up[1]);
        to_ = down[1];
        from_ = up[0];
    }
    ~program() {
        send({});
        ::close(to_);
        ::close(from_);
        ::waitpid(child_, nullptr, 0);
    }
    program(const program&) = delete;
    program& operator=(const program&) = delete;

    std::int64_t open(const std::string& path, int flags = O_RDWR) {
        order o{act::open, 0, static_cast<std::uint64_t>(flags), 0, {}};
        path.copy(o.path, sizeof o.path - 1);
        return ask(o).code;
    }
    std::int64_t map(std::uint64_t bytes) { return ask({act::map, 0, 0, bytes, {}}).code; }
    // Closes the descriptor; the mapping stays until close_file().
    std::int64_t keep_mapping() { return ask({act::keep_mapping, 0, 0, 0, {}}).code; }
    std::int64_t close_file() { return ask({act::close_file, 0, 0, 0, {}}).code; }
    answer read(std::uint64_t offset) { return ask({act::read, offset, 0, 0, {}}); }
    std::int64_t write(std::uint64_t offset, std::uint64_t value) {
        return ask({act::write, offset, value, 0, {}}).code;
    }
    answer load(std::uint64_t offset) { return ask({act::load, offset, 0, 0, {}}); }
    std::int64_t store(std::uint64_t offset, std::uint64_t value) {
        return ask({act::store, offset, value, 0, {}}).code;
    }

    // `rounds` times, each number after the one before: the number to every word from `first` on
    // that is `stride` words behind the last, up to the file's `bytes`; through the mapping if
    // there is one. Begins, and is waited for by hear().
    void begin_hammering(std::uint64_t first, std::uint64_t stride, std::uint64_t bytes,
                         std::uint64_t rounds) {
        send({act::hammer, first | stride << 32, bytes, rounds, {}});
    }
    answer hear() {
        answer out{-EPIPE, 0};
        if (::read(from_, &out, sizeof out) != sizeof out) out.code = -EPIPE;
        return out;
    }

private:
    void send(const order& o) { [[maybe_unused]] const auto sent = ::write(to_, &o, sizeof o); }
    answer ask(const order& o) {
        send(o);
        return hear();
    }

    struct state {
        int fd = -1;
        std::byte* bytes = nullptr;
        std::uint64_t mapped = 0;
    };
    static std::atomic_ref<std::uint64_t> word_at(const state& s, std::uint64_t offset) {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(s.bytes + offset));
    }
    static std::int64_t coded(std::int64_t result) { return result < 0 ? -errno : result; }
    static std::int64_t put(const state& s, std::uint64_t offset, std::uint64_t value) {
        if (s.bytes == nullptr)
            return coded(::pwrite(s.fd, &value, sizeof value, static_cast<off_t>(offset)));
        word_at(s, offset) = value;
        return 0;
    }
    static answer obey(state& s, const order& o) {
        answer out;
        switch (o.action) {
            case act::open:
                s.fd = ::open(o.path, static_cast<int>(o.value));
                out.code = coded(s.fd);
                break;
            case act::map: {
                void* const at =
                    ::mmap(nullptr, o.count, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
                if (at == MAP_FAILED) out.code = -errno;
                else s.bytes = static_cast<std::byte*>(at), s.mapped = o.count;
                break;
            }
            case act::read:
                out.code = coded(
                    ::pread(s.fd, &out.value, sizeof out.value, static_cast<off_t>(o.offset)));
                break;
            case act::write:
                out.code =
                    coded(::pwrite(s.fd, &o.value, sizeof o.value, static_cast<off_t>(o.offset)));
                break;
            case act::load: out.value = word_at(s, o.offset); break;
            case act::store: word_at(s, o.offset) = o.value; break;
            case act::hammer:
                for (std::uint64_t round = 1; round <= o.count; ++round)
                    for (std::uint64_t word = o.offset & 0xffffffffu; word < o.value / 8;
                         word += o.offset >> 32)
                        if (const std::int64_t code = put(s, word * 8, round); code < 0)
                            out.code = code;
                break;
            case act::keep_mapping: out.code = coded(::close(std::exchange(s.fd, -1))); break;
            case act::close_file:
                if (s.bytes != nullptr) ::munmap(s.bytes, s.mapped);
                s.bytes = nullptr;
                if (s.fd >= 0) out.code = coded(::close(std::exchange(s.fd, -1)));
                break;
            case act::end: break;
        }
        return out;
    }
    static void serve(int from, int to) {
        state s;
        order o;
        while (::read(from, &o, sizeof o) == sizeof o && o.action != act::end) {
            const answer out = obey(s, o);
            if (::write(to, &out, sizeof out) != sizeof out) return;
        }
    }

    pid_t child_ = -1;
    int to_ = -1, from_ = -1;
};

}  // namespace penstock::test
