// An operating system that misbehaves on demand: put between Penstock and the real one through
// host::runtime_hooks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "os/env.hpp"

namespace penstock::fault {

// Kinds of calls, as bits.
enum call : std::uint32_t {
    call_find = 1,
    call_real_path = 2,
    call_facts = 4,
    call_open_found = 8,
    call_read = 16,
    call_map = 32,
    call_open_direct = 64,
    call_direct_read = 128,  // those of call_read are the others
    every_call = 255,
    call_close = 256,  // can be stalled; never fails
    call_open_writing = 512,
    call_create = 1024,
    call_write = 2048,
    call_sync = 4096,
    call_truncate = 8192,
    every_write_call = 512 + 1024 + 2048 + 4096 + 8192,
    call_unlink = 32768,
    call_rename = 65536,
    every_name_call = 32768 + 65536,
    // Those of call_read that go by no engine: can be stalled by this name.
    call_plain_read = 131072,
    call_will_need = 262144,  // a hint, whose failure is no caller's error
    // Those of call_read that go by an engine and hold up their thread: can be stalled by this
    // name.
    call_held_read = 524288,
    call_register = 16384  // its failure is no caller's error
};

struct fault_plan {
    std::uint32_t calls = every_call;  // which kinds are counted and may fail
    std::uint64_t nth = 0;             // the call that fails, from 1; 0: none
    bool for_ever = false;             // and all after it
    int error = -5;                   // a negative errno; 0 for a read: the file seems to end there
    std::uint32_t longest_read = 0;   // reads deliver at most so many bytes at a time; 0: no limit
    std::uint32_t longest_write = 0;  // writes take at most so many bytes at a time; 0: no limit
    std::uint64_t read_delay_ns = 0;  // results of reads are seen no sooner
    bool shuffle = false;             // results of reads come in random order
    std::uint64_t flip_every = 0;     // every so manieth read delivers one wrong byte; 0: none
    // Reads that touch these bytes of any file fail too, as often as they are tried.
    std::uint64_t bad_begin = 0, bad_end = 0;
};

class faulty_environment : public host::environment {
public:
    explicit faulty_environment(host::environment& real = host::linux_environment())
        : real_(real) {}

    // From now on misbehaves as planned; the count of calls starts again at 0.
    void set(const fault_plan& plan);
    void clear() { set({}); }
    // Calls of the planned kinds since then.
    [[nodiscard]] std::uint64_t calls() const { return count_.load(); }
    // Reads that went by an engine, failed ones too; ever.
    [[nodiscard]] std::uint64_t queued_reads() const { return queued_reads_.load(); }
    // How many of them failed.
    [[nodiscard]] std::uint64_t failures() const { return failures_.load(); }

    // Calls of these kinds wait until release(). Reads wait as the disk would, the others hold up
    // their thread.
    void stall(std::uint32_t kinds);
    void release() { stall(0); }
    // Writes that begin before this byte of a file find no space.
    void refuse_writes_before(std::uint64_t offset) { refused_before_ = offset; }
    // Threads in a stalled call and reads held back, now.
    [[nodiscard]] int stalled() const { return stalled_.load(); }

    // Handles given out and not closed.
    [[nodiscard]] int handles() const { return handles_.load(); }

    int find(int start, const std::string& path) override;
    int real_path(int handle, std::string& out) override;
    int facts(int handle, host::file_facts& out) override;
    std::int64_t size_bytes(int handle) override;  // counts as a call of call_facts
    int open_found(int handle) override;
    int open_plain(int start, const std::string& path) override;  // counts as a call of call_find
    void reserve_handles(int handle, std::size_t count) override {
        real_.reserve_handles(handle, count);
    }
    void close(int handle) override;
    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override;
    int open_writing(int handle) override;
    int create(int directory, const std::string& name) override;
    int unlink(int directory, const std::string& name) override;
    int rename(int from, const std::string& name, int to, const std::string& new_name) override;
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override;
    // Not there, unless said so: then of each call the first so many bytes.
    std::int64_t write_scattered(int fd, const host::placed_piece* pieces,
                                 std::size_t count) override;
    void write_scattered_up_to(std::uint64_t bytes) { most_scattered_ = bytes; }
    [[nodiscard]] std::uint64_t scattered_bytes() const { return scattered_.load(); }
    std::int64_t write_unwatched(int fd, const host::memory_piece* pieces, std::size_t count,
                                 std::uint64_t offset) override;
    int sync(int fd) override;
    int truncate(int fd, std::uint64_t size_bytes) override;
    int open_direct(int fd, std::uint32_t& grain_bytes) override;
    bool has_no_name(int handle) override { return real_.has_no_name(handle); }
    int in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        const int said = said_cached_.load();
        return said != ask ? said : real_.in_page_cache(fd, offset, bytes);
    }
    int will_need(int fd, std::uint64_t offset, std::uint64_t bytes) override;
    // What in_page_cache answers from now on; `ask`: the truth.
    static constexpr int ask = 2;
    void say_cached(int answer) { said_cached_ = answer; }
    std::int64_t next_data(int fd, std::uint64_t offset) override {
        return real_.next_data(fd, offset);
    }
    std::int64_t next_hole(int fd, std::uint64_t offset) override {
        return real_.next_hole(fd, offset);
    }
    int map_file(int fd, std::uint64_t offset, std::uint64_t bytes, void*& address) override {
        int error = 0;
        return fails(call_map, error) ? error : real_.map_file(fd, offset, bytes, address);
    }
    void unmap_file(void* address, std::uint64_t bytes) override {
        real_.unmap_file(address, bytes);
    }
    int populate(void* address, std::uint64_t bytes) override {
        int error = 0;
        return fails(call_map, error) ? error : real_.populate(address, bytes);
    }
    // As a network file system, if it was said so.
    bool changes_elsewhere(int fd) override {
        return changes_elsewhere_ || real_.changes_elsewhere(fd);
    }
    void say_changes_elsewhere() { changes_elsewhere_ = true; }
    int resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                 std::vector<bool>& out) override {
        int error = 0;
        return fails(call_map, error) ? error : real_.resident(address, bytes, piece_bytes, out);
    }
    // Without leases, unless they are allowed: then as the real one has them.
    void allow_leases() { leases_ = true; }
    int take_lease(int fd) override {
        return leases_ ? real_.take_lease(fd) : host::environment::take_lease(fd);
    }
    bool is_lease_awaited(int fd) override { return real_.is_lease_awaited(fd); }
    void end_lease(int fd) override { real_.end_lease(fd); }
    // Tells of other handles of a file and of changes by others as the real one does, unless it is
    // to hide the one or the other.
    void hide_handles() { hides_handles_ = true; }
    void hide_changes() { hides_changes_ = true; }
    int take_sole_lease(int fd) override { return hides_handles_ ? 0 : real_.take_sole_lease(fd); }
    int open_watch() override {
        const int watch = real_.open_watch();
        if (watch >= 0) ++handles_;
        return watch;
    }
    int watch_file(int watch, int fd) override { return real_.watch_file(watch, fd); }
    void end_watch(int watch, int number) override { real_.end_watch(watch, number); }
    void read_watch(int watch, std::vector<int>& out) override {
        if (!hides_changes_) real_.read_watch(watch, out);
    }
    std::unique_ptr<host::io_engine> make_io_engine(bool want_uring, std::uint32_t depth,
                                                    std::string& why) override;

private:
    friend class faulty_engine;

    // Whether this call fails; then `error` is set.
    bool fails(call kind, int& error);
    bool read_fails(call kind, std::uint64_t offset, std::uint64_t bytes, int& error);
    void wait_while_stalled(call kind);
    using write_call = std::int64_t (host::environment::*)(int, const host::memory_piece*,
                                                           std::size_t, std::uint64_t);
    std::int64_t write_by(write_call call, int fd, const host::memory_piece* pieces,
                          std::size_t count, std::uint64_t offset);
    [[nodiscard]] bool is_direct(int fd) const;
    [[nodiscard]] fault_plan plan() const;

    host::environment& real_;
    mutable std::mutex mutex_;  // guards plan_, direct_
    fault_plan plan_;
    std::set<int> direct_;  // handles of open_direct
    std::atomic<int> said_cached_{ask};
    std::atomic<bool> leases_{false}, changes_elsewhere_{false};
    std::atomic<bool> hides_handles_{false}, hides_changes_{false};
    std::atomic<std::uint64_t> most_scattered_{0}, scattered_{0};
    std::condition_variable released_;
    std::atomic<std::uint32_t> stalled_kinds_{0};
    std::atomic<std::uint64_t> refused_before_{0};
    std::atomic<std::uint64_t> count_{0}, failures_{0}, reads_{0}, queued_reads_{0};
    std::atomic<int> stalled_{0}, handles_{0};
};

}  // namespace penstock::fault
