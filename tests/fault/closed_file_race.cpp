// A runtime writes a file, closes it and reads it again, round after round, while another program
// changes other bytes of the same page in every way there is. No read may give bytes that were
// replaced before the file was opened.
//
//   penstock_closed_file_race FOLDER ROUNDS [thread] [hide-handles] [hide-changes]
//       thread: the other writer is a thread of the same process
//       hide-...: the runtime does not hear of handles that others have open, or of changes by
//       others; so the run has to fail
//
// The other writer counts up. It says the number it is about to write, writes it, and says that it
// did. A reader takes the number that was written last, opens the file and must find that number
// or a later one; or zeros, if the writer has cut the file since.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "fault/faulty_environment.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/penstock.hpp"
#include "penstock/write.hpp"
#include "runtime/runtime_state.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t page = 4096, file_bytes = 4 * page, own_at = page + 8,
                        other_at = page + 1000;

// In memory of both processes. Sequentially consistent: one order of all that both say.
struct spoken {
    std::atomic<std::uint64_t> begun{0}, done{0}, cuts_begun{0}, cuts_done{0}, round{0};
    std::atomic<bool> stop{false};
};

[[noreturn]] void fail(const char* label, std::int64_t code) {
    std::fprintf(stderr, "penstock_closed_file_race: %s: %s\n", label, error_text(code).c_str());
    std::_Exit(2);
}

std::int64_t good(const char* label, std::int64_t result) {
    if (result < 0) fail(label, result);
    return result;
}

int must(const char* label, int result) {
    if (result < 0) fail(label, -errno);
    return result;
}

class other_writer {
public:
    other_writer(std::string path, spoken& said) : path_(std::move(path)), said_(said) {}
    ~other_writer() {
        let_go();
        if (queue_ != 0) ::syscall(SYS_io_destroy, queue_);
    }
    other_writer(const other_writer&) = delete;
    other_writer& operator=(const other_writer&) = delete;

    void run() {
        while (!said_.stop) {
            rest();
            said_.begun = ++number_;
            change();
            said_.done = number_;
        }
    }

private:
    std::uint64_t draw(std::uint64_t below) {
        return mix64(++draws_ * 0x9e3779b97f4a7c15ull) % below;
    }

    // Mostly short, so that changes come at every step of a round; now and then some rounds long
    // and without a handle, so that the runtime has something to prove, however slow it runs.
    void rest() {
        const bool is_long = draw(64) == 0;
        const std::uint64_t round = said_.round;
        if (is_long) let_go();
        if (is_long && held_ >= 0) ::close(std::exchange(held_, -1));
        const std::uint64_t us = is_long ? 10'000 : draw(16) == 0 ? 500 + draw(1500) : draw(120);
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
        if (us > 100) std::this_thread::sleep_until(end);
        while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
        constexpr int most_naps = 2000;
        for (int i = 0; is_long && said_.round < round + 4 && !said_.stop && i < most_naps; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    void change() {
        const std::uint64_t way = draw(9);
        if (mapped_ != nullptr && draw(3) == 0) let_go();
        if (mapped_ != nullptr) return store();
        if (way == 0) write(O_WRONLY);
        else if (way == 1) store_and_let_go();
        else if (way == 2) hold();
        else if (way == 3) write_with_old_times();
        else if (way == 4) cut();
        else if (way == 5) write(O_WRONLY | O_SYNC);
        else if (way == 6) write_unwatched();
        else if (way == 7) cut_by_reader();
        else write_by_held();
    }

    int opened(int flags) { return must("open", ::open(path_.c_str(), flags | O_CLOEXEC)); }
    void put(int fd) {
        if (::pwrite(fd, &number_, sizeof number_, other_at) != sizeof number_)
            fail("pwrite", -errno);
    }
    void write(int flags) {
        const int fd = opened(flags);
        put(fd);
        ::close(fd);
    }
    void map() {
        const int fd = opened(O_RDWR);
        mapped_ = static_cast<std::byte*>(
            ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        ::close(fd);
        if (mapped_ == MAP_FAILED) fail("mmap", -errno);
    }
    void let_go() {
        if (mapped_ != nullptr) ::munmap(mapped_, file_bytes);
        mapped_ = nullptr;
    }
    void store() {
        std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(mapped_ + other_at))
            .store(number_);
    }
    void store_and_let_go() {
        map();
        store();
        let_go();
    }
    void hold() {
        map();
        store();
    }
    void write_with_old_times() {
        struct stat before {};
        must("stat", ::stat(path_.c_str(), &before));
        write(O_WRONLY);
        const timespec times[2] = {before.st_atim, before.st_mtim};
        must("utimensat", ::utimensat(AT_FDCWD, path_.c_str(), times, 0));
    }
    // Nothing of the file is mapped here now, which a cut would take away.
    void cut() {
        ++said_.cuts_begun;
        must("truncate", ::truncate(path_.c_str(), static_cast<off_t>(draw(2) * page)));
        must("truncate", ::truncate(path_.c_str(), file_bytes));
        write(O_WRONLY);
        ++said_.cuts_done;
    }
    void cut_by_reader() {
        ++said_.cuts_begun;
        ::close(opened(O_RDONLY | O_TRUNC));
        must("truncate", ::truncate(path_.c_str(), file_bytes));
        write(O_WRONLY);
        ++said_.cuts_done;
    }
    // By the kernel's asynchronous I/O, which no watch hears of.
    void write_unwatched() {
        if (queue_ == 0) must("io_setup", static_cast<int>(::syscall(SYS_io_setup, 1, &queue_)));
        const int fd = opened(O_WRONLY);
        iocb one{};
        one.aio_fildes = static_cast<std::uint32_t>(fd);
        one.aio_lio_opcode = IOCB_CMD_PWRITE;
        one.aio_buf = reinterpret_cast<std::uintptr_t>(&number_);
        one.aio_nbytes = sizeof number_;
        one.aio_offset = other_at;
        iocb* list = &one;
        io_event event{};
        if (::syscall(SYS_io_submit, queue_, 1L, &list) != 1 ||
            ::syscall(SYS_io_getevents, queue_, 1L, 1L, &event, nullptr) != 1 ||
            event.res != sizeof number_)
            fail("io_submit", -errno);
        ::close(fd);
    }
    // A handle that stays open from one such change to the next.
    void write_by_held() {
        const int fd = opened(O_RDWR);
        put(fd);
        if (held_ >= 0) ::close(held_);
        held_ = draw(2) == 0 ? fd : -1;
        if (held_ < 0) ::close(fd);
    }

    const std::string path_;
    spoken& said_;
    std::uint64_t number_ = 0, draws_ = 0;
    std::byte* mapped_ = nullptr;
    int held_ = -1;
    aio_context_t queue_ = 0;
};

// In a row, in a round; the other program does other things too.
constexpr int most_cuts = 1000;

class rounds {
public:
    rounds(runtime& rt, std::string path, spoken& said)
        : rt_(rt), path_(std::move(path)), said_(said) {}

    // Returns how many reads were stale; stops at the first if that is enough.
    std::uint64_t run(std::uint64_t count, bool stops) {
        for (std::uint64_t round = 1; round <= count && (stale_ == 0 || !stops); ++round) {
            said_.round = round;
            const std::uint64_t cuts = said_.cuts_done;
            write_own(round);
            for (std::uint64_t again = round % 3; again < 3; ++again) look(round, cuts);
        }
        return stale_;
    }

private:
    void write_own(std::uint64_t round) {
        int fd = open_here(open_read_write);
        // -ESTALE: the file was cut before its page was read. An open sees what is left of it.
        for (int again = 0; !write_to(fd, round); ++again) {
            if (again == most_cuts) fail("write", -ESTALE);
            good("close", close(lane{}, rt_.ref(), fd));
            fd = open_here(open_read_write);
        }
        if (round % 5 == 0) good("msync", msync(lane{}, rt_.ref(), fd, 0, file_bytes));
        if (round % 7 == 0) std::this_thread::yield();
        good("close", close(lane{}, rt_.ref(), fd));
    }

    bool write_to(int fd, std::uint64_t round) {
        std::byte all[file_bytes];
        if (const std::int64_t got = read(lane{}, rt_.ref(), fd, all, file_bytes, 0);
            got < 0 && got != -ESTALE)
            fail("read", got);
        const std::int64_t done =
            penstock::write(lane{}, rt_.ref(), fd, &round, sizeof round, own_at);
        if (done < 0 && done != -ESTALE) fail("write", done);
        return done == sizeof round;
    }

    int open_here(std::uint32_t flags) {
        return static_cast<int>(good("open", open(lane{}, rt_.ref(), path_.c_str(), flags)));
    }

    // -ESTALE and short reads: the file was cut below the reader.
    std::uint64_t read_at(int fd, std::uint64_t offset) {
        std::uint64_t value = 0;
        const std::int64_t got =
            read(lane{}, rt_.ref(), fd, &value, sizeof value, static_cast<std::int64_t>(offset));
        if (got < 0 && got != -ESTALE) fail("read", got);
        return got == sizeof value ? value : 0;
    }

    void look(std::uint64_t round, std::uint64_t cuts_before) {
        const std::uint64_t least = said_.done, cuts = said_.cuts_done;
        const int fd = open_here(open_read);
        const std::uint64_t other = read_at(fd, other_at), own = read_at(fd, own_at);
        good("close", close(lane{}, rt_.ref(), fd));
        // Cuts that were under way, or have begun since, leave zeros.
        const std::uint64_t cuts_now = said_.cuts_begun;
        const bool is_stale = other < least && !(other == 0 && cuts_now != cuts);
        const bool is_lost = own != round && !(own == 0 && cuts_now != cuts_before);
        if (!is_stale && !is_lost) return;
        if (++stale_ <= 5)
            std::printf(
                "round %llu: read %llu, written %llu; own %llu\n",
                static_cast<unsigned long long>(round), static_cast<unsigned long long>(other),
                static_cast<unsigned long long>(least), static_cast<unsigned long long>(own));
    }

    runtime& rt_;
    const std::string path_;
    spoken& said_;
    std::uint64_t stale_ = 0;
};

std::unique_ptr<runtime> make(const std::string& root, fault::faulty_environment& env) {
    options o;
    o.where = backend::cpu;
    o.page_bytes = page;
    o.cache_bytes = 32 * page;
    o.table_bytes = 1 << 20;
    o.staging_bytes = 1 << 20;
    o.max_files = 16;
    o.service_threads = 1;
    o.writable = true;
    o.roots = {root};
    o.log = [](const std::string&) {};
    host::runtime_hooks hooks;
    hooks.env = &env;
    std::unique_ptr<runtime> rt;
    if (const status s = runtime::make(o, hooks, rt); !s) {
        std::fprintf(stderr, "penstock_closed_file_race: %s\n", s.message.c_str());
        std::_Exit(2);
    }
    return rt;
}

struct hidden {
    bool handles = false, changes = false;
};

int judge(const std::string& folder, std::uint64_t count, const hidden& hides, spoken& said) {
    fault::faulty_environment env;
    if (hides.handles) env.hide_handles();
    if (hides.changes) env.hide_changes();
    const auto rt = make(folder, env);
    const std::uint64_t stale =
        rounds(*rt, folder + "/file", said).run(count, hides.handles || hides.changes);
    said.stop = true;
    const std::uint64_t kept = rt->stats().kept_files;
    std::printf("%llu rounds, %llu closes that kept the pages, %llu changes by the other writer\n",
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(kept),
                static_cast<unsigned long long>(said.done.load()));
    if (stale != 0)
        std::printf("FAILED: %llu stale reads\n", static_cast<unsigned long long>(stale));
    if (kept == 0) std::printf("nothing was proved here: the file system or kernel allows none\n");
    return stale == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s FOLDER ROUNDS [thread] [hide-handles] [hide-changes]\n",
                     argv[0]);
        return 2;
    }
    const std::string folder = argv[1];
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
    bool by_thread = false;
    hidden hides;
    for (int i = 3; i < argc; ++i) {
        by_thread = by_thread || std::strcmp(argv[i], "thread") == 0;
        hides.handles = hides.handles || std::strcmp(argv[i], "hide-handles") == 0;
        hides.changes = hides.changes || std::strcmp(argv[i], "hide-changes") == 0;
    }
    const std::string path = folder + "/file";
    ::close(must("open", ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)));
    must("truncate", ::truncate(path.c_str(), file_bytes));
    void* const shared =
        ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap", -errno);
    auto* const said = new (shared) spoken;
    if (by_thread) {
        std::thread other([&] { other_writer(path, *said).run(); });
        const int code = judge(folder, count, hides, *said);
        other.join();
        return code;
    }
    std::fflush(nullptr);
    const pid_t child = must("fork", ::fork());
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        other_writer(path, *said).run();
        std::_Exit(0);
    }
    const int code = judge(folder, count, hides, *said);
    int status = 0;
    must("waitpid", ::waitpid(child, &status, 0));
    return status == 0 ? code : 2;
}
