#include "fault/faulty_environment.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "penstock/base/hash.hpp"

namespace penstock::fault {

using clock = std::chrono::steady_clock;

void faulty_environment::set(const fault_plan& plan) {
    std::lock_guard lock(mutex_);
    plan_ = plan;
    count_ = failures_ = 0;
}

fault_plan faulty_environment::plan() const {
    std::lock_guard lock(mutex_);
    return plan_;
}

void faulty_environment::stall(std::uint32_t kinds) {
    {
        std::lock_guard lock(mutex_);
        stalled_kinds_ = kinds;
    }
    released_.notify_all();
}

void faulty_environment::wait_while_stalled(call kind) {
    if ((stalled_kinds_.load() & kind) == 0) return;
    ++stalled_;
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return (stalled_kinds_.load() & kind) == 0; });
    --stalled_;
}

bool faulty_environment::fails(call kind, int& error) {
    const fault_plan now = plan();
    if ((now.calls & kind) == 0) return false;
    const std::uint64_t number = ++count_;
    if (now.nth == 0 || number < now.nth || (number > now.nth && !now.for_ever)) return false;
    error = now.error;
    ++failures_;
    return true;
}

bool faulty_environment::read_fails(call kind, std::uint64_t offset, std::uint64_t bytes,
                                    int& error) {
    if (fails(kind, error)) return true;
    const fault_plan now = plan();
    if (offset >= now.bad_end || now.bad_begin >= offset + bytes) return false;
    error = now.error;
    ++failures_;
    return true;
}

int faulty_environment::find(int start, const std::string& path) {
    int error = 0;
    wait_while_stalled(call_find);
    if (fails(call_find, error)) return error;
    const int handle = real_.find(start, path);
    if (handle >= 0) ++handles_;
    return handle;
}

int faulty_environment::real_path(int handle, std::string& out) {
    int error = 0;
    wait_while_stalled(call_real_path);
    return fails(call_real_path, error) ? error : real_.real_path(handle, out);
}

int faulty_environment::facts(int handle, host::file_facts& out) {
    int error = 0;
    wait_while_stalled(call_facts);
    return fails(call_facts, error) ? error : real_.facts(handle, out);
}

std::int64_t faulty_environment::size_bytes(int handle) {
    int error = 0;
    wait_while_stalled(call_facts);
    return fails(call_facts, error) ? error : real_.size_bytes(handle);
}

int faulty_environment::open_found(int handle) {
    int error = 0;
    wait_while_stalled(call_open_found);
    if (fails(call_open_found, error)) return error;
    const int fd = real_.open_found(handle);
    if (fd >= 0) ++handles_;
    return fd;
}

int faulty_environment::open_plain(int start, const std::string& path) {
    int error = 0;
    wait_while_stalled(call_find);
    if (fails(call_find, error)) return error;
    const int fd = real_.open_plain(start, path);
    if (fd >= 0) ++handles_;
    return fd;
}

int faulty_environment::open_direct(int fd, std::uint32_t& grain_bytes) {
    int error = 0;
    wait_while_stalled(call_open_direct);
    if (fails(call_open_direct, error)) return error;
    const int direct = real_.open_direct(fd, grain_bytes);
    if (direct < 0) return direct;
    ++handles_;
    std::lock_guard lock(mutex_);
    direct_.insert(direct);
    return direct;
}

bool faulty_environment::is_direct(int fd) const {
    std::lock_guard lock(mutex_);
    return direct_.count(fd) != 0;
}

void faulty_environment::close(int handle) {
    wait_while_stalled(call_close);
    {
        std::lock_guard lock(mutex_);
        direct_.erase(handle);
    }
    --handles_;
    real_.close(handle);
}

std::int64_t faulty_environment::read(int fd, std::byte* to, std::uint64_t bytes,
                                      std::uint64_t offset) {
    int error = 0;
    wait_while_stalled(call_plain_read);
    if (read_fails(call_read, offset, bytes, error)) return error;
    const std::uint64_t most = plan().longest_read;
    return real_.read(fd, to, most == 0 ? bytes : std::min<std::uint64_t>(bytes, most), offset);
}

int faulty_environment::will_need(int fd, std::uint64_t offset, std::uint64_t bytes) {
    int error = 0;
    wait_while_stalled(call_will_need);
    return fails(call_will_need, error) ? error : real_.will_need(fd, offset, bytes);
}

int faulty_environment::open_writing(int handle) {
    int error = 0;
    if (fails(call_open_writing, error)) return error;
    const int writing = real_.open_writing(handle);
    if (writing >= 0) ++handles_;
    return writing;
}

int faulty_environment::create(int directory, const std::string& name) {
    int error = 0;
    return fails(call_create, error) ? error : real_.create(directory, name);
}

int faulty_environment::unlink(int directory, const std::string& name) {
    int error = 0;
    return fails(call_unlink, error) ? error : real_.unlink(directory, name);
}

int faulty_environment::rename(int from, const std::string& name, int to,
                               const std::string& new_name) {
    int error = 0;
    return fails(call_rename, error) ? error : real_.rename(from, name, to, new_name);
}

std::int64_t faulty_environment::write(int fd, const host::memory_piece* pieces, std::size_t count,
                                       std::uint64_t offset) {
    return write_by(&host::environment::write, fd, pieces, count, offset);
}

std::int64_t faulty_environment::write_unwatched(int fd, const host::memory_piece* pieces,
                                                 std::size_t count, std::uint64_t offset) {
    return write_by(&host::environment::write_unwatched, fd, pieces, count, offset);
}

std::int64_t faulty_environment::write_by(write_call call, int fd, const host::memory_piece* pieces,
                                          std::size_t count, std::uint64_t offset) {
    int error = 0;
    wait_while_stalled(call_write);
    if (fails(call_write, error)) return error;
    if (offset < refused_before_) return -ENOSPC;
    std::uint64_t most = plan().longest_write;
    if (most == 0) return (real_.*call)(fd, pieces, count, offset);
    // The first pieces, and of the last one as much as is left.
    std::vector<host::memory_piece> some;
    for (std::size_t i = 0; i < count && most > 0; ++i) {
        some.push_back({pieces[i].from, std::min(pieces[i].bytes, most)});
        most -= some.back().bytes;
    }
    return (real_.*call)(fd, some.data(), some.size(), offset);
}

std::int64_t faulty_environment::write_scattered(int fd, const host::placed_piece* pieces,
                                                 std::size_t count) {
    std::uint64_t most = most_scattered_.load();
    if (most == 0) return -EOPNOTSUPP;
    std::vector<host::placed_piece> some(pieces, pieces + count);
    for (host::placed_piece& piece : some) {
        piece.bytes = std::min(piece.bytes, most);
        most -= piece.bytes;
    }
    std::erase_if(some, [](const host::placed_piece& piece) { return piece.bytes == 0; });
    const std::int64_t done = real_.write_scattered(fd, some.data(), some.size());
    if (done > 0) scattered_ += static_cast<std::uint64_t>(done);
    return done;
}

int faulty_environment::sync(int fd) {
    int error = 0;
    wait_while_stalled(call_sync);
    if (fails(call_sync, error)) return error;
    // The disk is not asked for more than whether the file may be brought to it: it may take longer
    // than a test waits, and no test can see what it has.
    return ::fcntl(fd, F_GETFD) < 0 ? -errno : 0;
}

int faulty_environment::truncate(int fd, std::uint64_t size_bytes) {
    int error = 0;
    wait_while_stalled(call_truncate);
    return fails(call_truncate, error) ? error : real_.truncate(fd, size_bytes);
}

// Reads go through here whatever engine is below, so that io_uring and pread fail alike.
class faulty_engine final : public host::io_engine {
public:
    faulty_engine(faulty_environment& env, std::unique_ptr<host::io_engine> real)
        : env_(env), real_(std::move(real)) {}
    ~faulty_engine() override { env_.stalled_ -= static_cast<int>(counted_); }

    [[nodiscard]] const char* name() const override { return real_->name(); }
    [[nodiscard]] std::uint32_t capacity() const override { return real_->capacity(); }
    void submit() override { real_->submit(); }
    [[nodiscard]] bool reads_at_once() const override { return real_->reads_at_once(); }
    [[nodiscard]] bool has_finished() const override { return real_->has_finished(); }

    int register_memory(const std::vector<host::memory_area>& areas) override {
        int error = 0;
        return env_.fails(call_register, error) ? error : real_->register_memory(areas);
    }

    void start(const host::read_operation& wanted) override {
        const fault_plan plan = env_.plan();
        ++env_.queued_reads_;
        if (!wanted.at_once) env_.wait_while_stalled(call_held_read);
        flight f{wanted, clock::now() + std::chrono::nanoseconds(plan.read_delay_ns), 0, true};
        const bool direct = env_.is_direct(wanted.fd);
        // A direct read of an odd length would be refused, so its result is cut.
        if (plan.longest_read != 0 && direct) f.most = plan.longest_read;
        else if (plan.longest_read != 0 && f.operation.bytes > plan.longest_read)
            f.operation.bytes = plan.longest_read;
        f.flip = plan.flip_every != 0 && ++env_.reads_ % plan.flip_every == 0;
        int error = 0;
        if (env_.read_fails(direct ? call_direct_read : call_read, wanted.offset, wanted.bytes,
                            error)) {
            f.result = error;
            held_.push_back(f);
            return;
        }
        std::size_t place = 0;
        while (place < flights_.size() && flights_[place].used) ++place;
        if (place == flights_.size()) flights_.emplace_back();
        flights_[place] = f;
        host::read_operation operation = f.operation;
        operation.tag = place;
        real_->start(operation);
    }

    void reap(std::vector<host::read_result>& out, std::uint64_t wait_ns) override {
        raw_.clear();
        real_->reap(raw_, held_.empty() ? wait_ns : 0);
        for (const host::read_result& result : raw_) {
            flight& f = flights_[result.tag];
            f.result = std::min(result.result, f.most);
            if (f.flip && result.result > 0)
                f.operation.to[mix64(++random_) % static_cast<std::uint64_t>(result.result)] ^=
                    std::byte{0x10};
            held_.push_back(f);
            f.used = false;
        }
        const std::size_t before = out.size();
        if ((env_.stalled_kinds_.load() & call_read) == 0) let_go(out);
        set_counted((env_.stalled_kinds_.load() & call_read) != 0 ? held_.size() : 0);
        if (!held_.empty() && out.size() == before && wait_ns > 0)
            std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
    }

private:
    struct flight {
        host::read_operation operation;
        clock::time_point due;
        std::int64_t result = 0;
        bool used = false;
        bool flip = false;
        std::int64_t most = INT64_MAX;
    };

    void let_go(std::vector<host::read_result>& out) {
        const bool shuffle = env_.plan().shuffle;
        if (shuffle)
            for (std::size_t i = held_.size(); i > 1; --i)
                std::swap(held_[i - 1], held_[mix64(++random_) % i]);
        const auto now = clock::now();
        std::vector<flight> rest;
        for (const flight& f : held_) {
            // When shuffling, half of the results also stay until the next look.
            const bool stays = f.due > now || (shuffle && mix64(++random_) % 2 == 0);
            if (stays) rest.push_back(f);
            else out.push_back({f.operation.tag, f.result});
        }
        held_.swap(rest);
    }

    void set_counted(std::size_t now) {
        env_.stalled_ += static_cast<int>(now) - static_cast<int>(counted_);
        counted_ = now;
    }

    faulty_environment& env_;
    const std::unique_ptr<host::io_engine> real_;
    std::vector<flight> flights_, held_;  // in the engine below; come back but not yet handed on
    std::vector<host::read_result> raw_;
    std::uint64_t random_ = 0;
    std::size_t counted_ = 0;
};

std::unique_ptr<host::io_engine> faulty_environment::make_io_engine(bool want_uring,
                                                                    std::uint32_t depth,
                                                                    std::string& why) {
    auto real = real_.make_io_engine(want_uring, depth, why);
    if (real == nullptr) return nullptr;
    return std::make_unique<faulty_engine>(*this, std::move(real));
}

}  // namespace penstock::fault
