// Copies files by the operating system, and passes no byte through a runtime: the file system
// shares the blocks where it can (FICLONE), else the operating system copies pieces
// (copy_file_range), and where it refuses that they go through a buffer.
//
// Threads take the pieces of all files in order, and leave out none but behind a failure of the
// same file. So all that lies before the first piece that is not done was copied.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "command.hpp"
#include "common/threads.hpp"
#include "copier.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"

namespace penstock::cli {

namespace {

using apps::unique_fd;
using apps::with_commas;
using cp::file_range;
using cp::open_copy;

constexpr std::uint64_t most_piece_bytes = 8 << 20;
constexpr std::uint64_t buffer_bytes = 1 << 20;
// Writers of one file wait for each other in the file system, so more than a few give nothing.
constexpr unsigned most_threads = 4;

struct piece {
    std::size_t file;
    std::uint64_t offset, bytes;
    // What became of it:
    std::uint64_t done = 0;
    int code = -ECANCELED;
    bool reading = false;
};

struct host_copy {
    const planned_copy* plan;
    open_copy copy;
    unique_fd source, place;
    bool is_shared = false;
    bool has_failed = false;  // set and read by the threads, atomically
};

bool is_no_room(int code) { return code == ENOSPC || code == EFBIG || code == EDQUOT; }

// Of this thread.
std::vector<std::byte>& buffer(unsigned number) {
    thread_local std::vector<std::byte> buffers[2];
    buffers[number].resize(buffer_bytes);
    return buffers[number];
}

// Bytes, fewer only at the end of the file, or a negative errno.
std::int64_t read_some(int fd, std::vector<std::byte>& to, std::uint64_t bytes, std::uint64_t at) {
    return host::read_all(host::linux_environment(), fd, to.data(),
                          std::min<std::uint64_t>(bytes, to.size()), at);
}

// Goes on where the piece stands. False: it has failed.
bool copy_by_buffer(const host_copy& of, piece& p) {
    std::vector<std::byte>& bytes = buffer(0);
    const std::uint64_t at = p.offset + p.done;
    const std::int64_t got = read_some(of.source, bytes, p.bytes - p.done, at);
    p.reading = got <= 0;
    if (p.reading) {
        p.code = got < 0 ? static_cast<int>(got) : -ESTALE;
        return false;
    }
    for (std::int64_t put = 0; put < got;) {
        const ssize_t written =
            ::pwrite(of.place, bytes.data() + put, static_cast<std::size_t>(got - put),
                     static_cast<off_t>(at) + put);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            p.code = written < 0 ? -errno : -EIO;
            return false;
        }
        put += written;
        p.done += static_cast<std::uint64_t>(written);
    }
    return true;
}

void copy_piece(const host_copy& of, piece& p) {
    bool by_system = true;
    while (p.done < p.bytes) {
        if (was_interrupted()) return;
        if (by_system) {
            auto from = static_cast<off_t>(p.offset + p.done), to = from;
            const ssize_t copied =
                ::copy_file_range(of.source, &from, of.place, &to, p.bytes - p.done, 0);
            if (copied > 0) {
                p.done += static_cast<std::uint64_t>(copied);
                continue;
            }
            if (copied < 0 && errno == EINTR) continue;
            if (copied < 0 && is_no_room(errno)) {
                p.code = -errno;
                return;
            }
            by_system = false;  // a buffer tells whether reading or writing fails
        }
        if (!copy_by_buffer(of, p)) return;
    }
    p.code = 0;
}

void compare_piece(int source, int copy, piece& p) {
    p.reading = true;
    while (p.done < p.bytes) {
        if (was_interrupted()) return;
        std::vector<std::byte>&ours = buffer(0), &theirs = buffer(1);
        const std::uint64_t at = p.offset + p.done;
        const std::int64_t a = read_some(source, ours, p.bytes - p.done, at),
                           b = read_some(copy, theirs, p.bytes - p.done, at);
        const std::int64_t both = std::min(a, b);
        if (both <= 0) {
            p.code = both < 0 ? static_cast<int>(both) : -ESTALE;
            return;
        }
        const auto same =
            std::mismatch(ours.begin(), ours.begin() + both, theirs.begin()).first - ours.begin();
        p.done += static_cast<std::uint64_t>(same);
        if (same < both) {
            p.code = -EILSEQ;
            return;
        }
    }
    p.code = 0;
}

void cut_up(std::size_t file, const file_range& part, std::vector<piece>& out) {
    for (std::uint64_t at = 0; at < part.bytes; at += most_piece_bytes)
        out.push_back({file, part.offset_bytes + at, std::min(most_piece_bytes, part.bytes - at)});
}

// Of the first piece of the file that is not done, if there is one.
void judge(const std::vector<piece>& pieces, std::size_t file, open_copy& copy) {
    copy.reached_bytes = copy.bytes;
    copy.code = 0;
    for (const piece& p : pieces) {
        if (p.file != file || p.code == 0) continue;
        copy.reached_bytes = p.offset + p.done;
        copy.code = p.code;
        copy.reading = p.reading;
        return;
    }
}

class host_copier final : public copier {
public:
    explicit host_copier(const copy_wishes& wanted) : wanted_(wanted) {}

    [[nodiscard]] std::size_t files_at_once() const override {
        constexpr rlim_t others = 24, most = 128;
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
        return std::clamp<rlim_t>((limit.rlim_cur > others ? limit.rlim_cur - others : 0) / 2, 1,
                                  most);
    }
    [[nodiscard]] std::uint64_t bytes_written() const override { return written_; }

    status copy(std::span<const planned_copy> plans, copy_totals& totals) override {
        apps::stopwatch watch;
        std::vector<host_copy> files;
        for (const planned_copy& plan : plans)
            if (const status s = add(plan, files); !s) {
                apps::say(s.message);
                ++totals.failed;
            }
        std::vector<piece> pieces;
        for (std::size_t i = 0; i < files.size(); ++i)
            if (!files[i].is_shared)
                for (const file_range& part : files[i].copy.data) cut_up(i, part, pieces);
        on_pieces(pieces, files, [&](piece& p) {
            copy_piece(files[p.file], p);
            written_ += p.done;
        });
        std::vector<bool> good;
        for (std::size_t i = 0; i < files.size(); ++i) {
            const status ended = conclude(pieces, i, files[i]);
            good.push_back(ended.ok());
            apps::say(ended.message);
        }
        totals.seconds += watch.lap();
        if (wanted_.verify && !was_interrupted()) {
            verify(files, good);
            totals.verify_seconds += watch.lap();
        }
        for (std::size_t i = 0; i < files.size(); ++i) {
            count(files[i].copy, good[i], totals);
            if (good[i] && files[i].is_shared) totals.shared_bytes += files[i].copy.bytes;
        }
        return {};
    }

    [[nodiscard]] nlohmann::json facts() const override { return {{"by", "host"}}; }

private:
    // Opens both files and makes the second one if it is not there; an existing one is cut, and
    // loses what it had.
    static status add(const planned_copy& plan, std::vector<host_copy>& to) {
        host_copy file{
            &plan, {}, unique_fd(::open(plan.from.c_str(), O_RDONLY | flags_of_any)), {}};
        struct stat facts {};
        if (file.source < 0 || ::fstat(file.source, &facts) != 0)
            return about_source(plan.from, -errno, "cp");
        file.copy.bytes = static_cast<std::uint64_t>(facts.st_size);
        file.copy.data = cp::data_of(file.source, file.copy.bytes, least_hole_bytes);
        if (status s = open_place(plan, file.place); !s) return s;
        if (::ftruncate(file.place, 0) != 0) return place_failed(plan, -errno, "give another name");
        file.is_shared = file.copy.bytes > 0 && ::ioctl(file.place, FICLONE, int{file.source}) == 0;
        to.push_back(std::move(file));
        return {};
    }

    template <typename Work>
    static void on_pieces(std::vector<piece>& pieces, std::vector<host_copy>& files,
                          const Work& work) {
        std::atomic<std::size_t> next{0};
        const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
        const auto threads =
            static_cast<std::uint32_t>(std::min({pieces.size(), cores, std::size_t{most_threads}}));
        if (threads == 0) return;
        // Relaxed: what a failure is about comes to the caller with the end of the threads.
        apps::on_threads(threads, [&](std::uint32_t) {
            for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
                 i < pieces.size() && !was_interrupted();
                 i = next.fetch_add(1, std::memory_order_relaxed)) {
                std::atomic_ref failed(files[pieces[i].file].has_failed);
                if (failed.load(std::memory_order_relaxed)) continue;
                work(pieces[i]);
                if (pieces[i].code != 0) failed.store(true, std::memory_order_relaxed);
            }
        });
    }

    // Gives the copy its end and permissions, and brings it to storage if that is wanted.
    [[nodiscard]] status conclude(const std::vector<piece>& pieces, std::size_t number,
                                  host_copy& file) const {
        open_copy& copy = file.copy;
        const planned_copy& plan = *file.plan;
        struct stat now {};
        judge(pieces, number, copy);
        if (plan.is_new) ::fchmod(file.place, plan.mode);
        // Of shared blocks the copy has what there was at that moment.
        if (copy.code == 0 && ::fstat(file.is_shared ? file.place : file.source, &now) == 0 &&
            static_cast<std::uint64_t>(now.st_size) < copy.bytes) {
            copy.reached_bytes = static_cast<std::uint64_t>(now.st_size);
            copy.code = -ESTALE;
            copy.reading = true;
        }
        int code =
            ::ftruncate(file.place, static_cast<off_t>(copy.reached_bytes)) == 0 ? 0 : -errno;
        if (copy.code != 0) return copying_failed(plan, copy, reason_of(pieces, number, copy));
        if (code == 0 && wanted_.fsync)
            code = host::sync_file(host::linux_environment(), file.place);
        const int closed = ::close(file.place.release()) == 0 ? 0 : -errno;
        if (code == 0) code = closed;
        if (code == 0 && wanted_.fsync) code = sync_directory_of(plan.to);
        return code == 0 ? status{} : ending_failed(plan, copy, code);
    }

    static std::string reason_of(const std::vector<piece>& pieces, std::size_t number,
                                 const open_copy& copy) {
        for (const piece& p : pieces)
            if (p.file == number && p.code == copy.code)
                return "bytes " + with_commas(copy.reached_bytes) + " to " +
                       with_commas(p.offset + p.bytes) +
                       " could not be written: " + error_text(copy.code);
        return "";
    }

    // Reads copies and sources again and compares all bytes, those of holes too.
    static void verify(std::vector<host_copy>& files, std::vector<bool>& good) {
        std::vector<piece> pieces;
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (!good[i]) continue;
            const planned_copy& plan = *files[i].plan;
            const std::uint64_t bytes = files[i].copy.bytes;
            files[i].place = unique_fd(::open(plan.to.c_str(), O_RDONLY | flags_of_any));
            struct stat facts {};
            status ended;
            if (files[i].place < 0 || ::fstat(files[i].place, &facts) != 0)
                ended = about_source(plan.to, -errno, "cp");
            else if (static_cast<std::uint64_t>(facts.st_size) != bytes)
                ended = length_differs(plan, static_cast<std::uint64_t>(facts.st_size), bytes);
            apps::say(ended.message);
            good[i] = ended.ok();
            if (good[i]) cut_up(i, {0, bytes}, pieces);
        }
        on_pieces(pieces, files,
                  [&](piece& p) { compare_piece(files[p.file].source, files[p.file].place, p); });
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (!good[i]) continue;
            open_copy compared{.bytes = files[i].copy.bytes, .data = {}};
            judge(pieces, i, compared);
            if (compared.code == 0 || compared.code == -ECANCELED) continue;
            apps::say(comparing_failed(*files[i].plan, compared).message);
            good[i] = false;
        }
    }

    const copy_wishes wanted_;
    std::atomic<std::uint64_t> written_{0};
};

}  // namespace

std::unique_ptr<copier> make_host_copier(const copy_wishes& wanted) {
    return std::make_unique<host_copier>(wanted);
}

}  // namespace penstock::cli
