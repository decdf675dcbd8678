// What the fault tests do to files that they write: a bit of everything by several threads, in a
// cache smaller than the data. Every result is judged against a shadow: the bytes that the calls
// said were written.
#pragma once

#include <thread>
#include <unistd.h>

#include "fault/scenario.hpp"
#include "penstock/write.hpp"

namespace penstock::fault {

// Of the files "old0", "old1", ... that are there before.
inline constexpr std::uint64_t old_bytes = 5 * page + 77;
inline constexpr std::uint32_t most_writers = 4, stripe = 60;
inline constexpr std::uint64_t stripe_rounds = 100;

struct written_folder {
    temporary_folder folder;
    written_folder() {
        for (std::uint32_t i = 0; i < most_writers; ++i)
            test::write_file(folder / old(i), test::pattern(i, old_bytes));
        test::write_file(folder / "shared", {});
    }
    static std::string old(std::uint32_t i) { return "old" + std::to_string(i); }
};

// A file of one thread, as the calls on it said that it is. No other thread writes it.
struct shadow_file {
    std::string name;
    int fd = -1;
    std::vector<std::uint8_t> bytes;
    // false: an append ended in the middle, so nothing is said of the bytes any more.
    bool known = true;

    void put(std::uint64_t offset, const std::vector<std::uint8_t>& content, std::uint64_t count) {
        if (bytes.size() < offset + count) bytes.resize(offset + count);
        std::copy_n(content.begin(), count, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    }
};

// One thread's part. `excused` says which errors may come.
class write_scenario {
public:
    write_scenario(runtime& rt, const written_folder& from, std::uint32_t number,
                   std::uint32_t threads, std::function<bool(std::int64_t)> excused)
        : rt_(rt),
          fs_(rt.ref()),
          from_(from),
          number_(number),
          threads_(threads),
          excused_(std::move(excused)) {}

    void run() {
        write_own();
        write_stripes();
        change_old();
        for (std::uint32_t i = 0; i < 2; ++i) {
            rename_written(i);
            unlink_written(i);
        }
        for (std::uint32_t i = 0; i < 3; ++i) {
            shadow_file small{name("small" + std::to_string(i) + "-"), -1, {}};
            if (!open_it(small, open_write | open_create | open_exclusive)) continue;
            write_at(small, 0, 700 + i);
            close_it(small);
        }
    }

    // After the fault is gone: everything that a call said was written can be brought to its file.
    void heal() {
        for (shadow_file& file : left_) {
            file.fd = open(lane{}, fs_, file.name.c_str(), open_read_write);
            if (file.fd < 0) {
                complain("open " + file.name + " once the fault was gone: " + error_text(file.fd));
                continue;
            }
            if (const int first = fsync(lane{}, fs_, file.fd); first != 0) {
                tell("fsync", first);  // of a write-back that failed earlier
                if (const int second = fsync(lane{}, fs_, file.fd); second != 0)
                    complain("fsync once the fault was gone: " + error_text(second));
            }
            compare_with_disk(file, "fsync once the fault was gone");
            if (const int code = close(lane{}, fs_, file.fd); code != 0)
                complain("close once the fault was gone: " + error_text(code));
            compare_with_disk(file, "close once the fault was gone");
        }
        left_.clear();
        heal_stripes();
    }

    [[nodiscard]] const std::string& complaints() const { return complaints_; }
    [[nodiscard]] std::uint32_t errors() const { return errors_; }  // that the calls told

private:
    [[nodiscard]] std::string name(const std::string& kind) const {
        return kind + std::to_string(number_);
    }
    void complain(const std::string& complaint) {
        complaints_ += "thread " + std::to_string(number_) + ": " + complaint + "\n";
    }

    // True if `got` is an error, which is complained of unless it is excused.
    bool tell(const std::string& label, std::int64_t got) {
        if (got >= 0) return false;
        ++errors_;
        if (!excused_(got)) complain(label + ": " + error_text(got));
        return true;
    }

    bool open_it(shadow_file& file, int flags) {
        file.fd = open(lane{}, fs_, file.name.c_str(), flags);
        return !tell("open " + file.name, file.fd);
    }

    void write_at(shadow_file& file, std::uint64_t offset, std::uint64_t count) {
        const auto bytes = test::pattern(number_ * 1000 + ++writes_, count);
        const std::int64_t done =
            write(lane{}, fs_, file.fd, bytes.data(), static_cast<std::int64_t>(count),
                  static_cast<std::int64_t>(offset));
        if (tell("write", done)) return;
        if (done == 0 || done > static_cast<std::int64_t>(count))
            complain("write gave " + std::to_string(done));
        if (done < static_cast<std::int64_t>(count)) ++errors_;
        file.put(offset, bytes, static_cast<std::uint64_t>(done));
    }

    void append_to(shadow_file& file, std::uint64_t count) {
        const auto bytes = test::pattern(number_ * 1000 + ++writes_, count);
        const std::int64_t at =
            append(lane{}, fs_, file.fd, bytes.data(), static_cast<std::int64_t>(count));
        if (at < 0) file.known = false;
        if (tell("append", at)) return;
        if (at != static_cast<std::int64_t>(file.bytes.size()) && file.known)
            complain("append at " + std::to_string(at));
        file.put(static_cast<std::uint64_t>(at), bytes, count);
    }

    void read_at(const shadow_file& file, std::uint64_t offset, std::uint64_t count) {
        std::vector<std::uint8_t> got(count, 0xee);
        const std::int64_t done =
            read(lane{}, fs_, file.fd, got.data(), static_cast<std::int64_t>(count),
                 static_cast<std::int64_t>(offset));
        if (tell("read", done) || !file.known) return;
        const std::uint64_t there =
            offset < file.bytes.size() ? std::min(count, file.bytes.size() - offset) : 0;
        if (static_cast<std::uint64_t>(done) > there)
            return complain("read gave " + std::to_string(done) + " of " + std::to_string(there));
        if (static_cast<std::uint64_t>(done) < there) ++errors_;
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(done); ++i)
            if (got[i] != file.bytes[offset + i])
                return complain(file.name + ": wrong byte at " + std::to_string(offset + i));
    }

    // No write that was acknowledged may be missing.
    void compare_with_disk(const shadow_file& file, const std::string& after) {
        if (!file.known) return;
        const auto there = bytes_on_disk(from_.folder / file.name);
        if (there.size() != file.bytes.size())
            return complain(file.name + " has " + std::to_string(there.size()) + " bytes and not " +
                            std::to_string(file.bytes.size()) + " after " + after);
        for (std::uint64_t i = 0; i < there.size(); ++i)
            if (there[i] != file.bytes[i])
                return complain(file.name + ": byte " + std::to_string(i) + " is missing after " +
                                after);
    }

    void fsync_it(const shadow_file& file) {
        if (!tell("fsync", fsync(lane{}, fs_, file.fd))) compare_with_disk(file, "fsync");
    }

    void close_it(shadow_file& file) {
        if (!tell("close", close(lane{}, fs_, file.fd))) compare_with_disk(file, "close");
        left_.push_back(file);
    }

    void truncate_it(shadow_file& file, std::uint64_t bytes) {
        if (!tell("truncate", truncate(lane{}, fs_, file.fd, static_cast<std::int64_t>(bytes))))
            file.bytes.resize(bytes);
    }

    void write_own() {
        shadow_file file{name("own"), -1, {}};
        if (!open_it(file, open_read_write | open_create | open_truncate)) return;
        for (std::uint64_t at = 0; at < 18 * page; at += 3001) write_at(file, at, 3001);
        read_at(file, 2 * page - 10, page);
        for (int i = 0; i < 3; ++i) append_to(file, 37);
        if (!tell("msync", msync(lane{}, fs_, file.fd, 0, 3 * page)) && file.known) {
            // Where the first writes found no room and a later one did, there is a hole: msync
            // brings nothing of it, and the file may end before it.
            auto there = bytes_on_disk(from_.folder / file.name);
            there.resize(std::max<std::size_t>(there.size(), 3 * page));
            const bool same =
                file.bytes.size() < 3 * page ||
                std::equal(there.begin(), there.begin() + 3 * page, file.bytes.begin());
            if (!same) complain("msync left something out");
        }
        write_at(file, 21 * page + 5, 100);
        fsync_it(file);
        read_at(file, 16 * page, 6 * page);
        write_at(file, page - 1, 2);
        truncate_it(file, 2 * page + 100);
        write_at(file, 3 * page, page);
        read_at(file, 0, 5 * page);
        truncate_it(file, 6 * page);
        close_it(file);
    }

    // Of the file that all have open, every thread writes the bytes that are its own.
    void write_stripes() {
        const int fd = open(lane{}, fs_, "shared", open_read_write);
        if (tell("open shared", fd)) return;
        for (std::uint64_t i = 0; i < stripe_rounds; ++i) {
            const auto bytes = test::pattern(77 + number_, stripe);
            const std::int64_t done = write(lane{}, fs_, fd, bytes.data(), stripe,
                                            static_cast<std::int64_t>(stripe_at(i)));
            tell("write to shared", done);
            if (done >= 0 && done < stripe) ++errors_;
            if (done == stripe) stripes_.push_back(i);
        }
        if (!tell("fsync of shared", fsync(lane{}, fs_, fd))) compare_stripes("fsync");
        tell(
            "close of shared",
            close(lane{}, fs_, fd));  // others may have it open yet, so nothing is said of the file
    }
    void heal_stripes() {
        const int fd = open(lane{}, fs_, "shared", open_read_write);
        if (fd < 0) return complain("open shared once the fault was gone: " + error_text(fd));
        if (const int first = fsync(lane{}, fs_, fd); first != 0) {
            tell("fsync of shared", first);
            if (const int second = fsync(lane{}, fs_, fd); second != 0)
                complain("fsync of shared once the fault was gone: " + error_text(second));
        }
        compare_stripes("fsync once the fault was gone");
        if (const int code = close(lane{}, fs_, fd); code != 0)
            complain("close of shared once the fault was gone: " + error_text(code));
    }
    [[nodiscard]] std::uint64_t stripe_at(std::uint64_t round) const {
        return (round * threads_ + number_) * stripe;
    }
    void compare_stripes(const std::string& after) {
        const auto there = bytes_on_disk(from_.folder / "shared");
        const auto bytes = test::pattern(77 + number_, stripe);
        for (const std::uint64_t i : stripes_)
            if (there.size() < stripe_at(i) + stripe ||
                !std::equal(bytes.begin(), bytes.end(),
                            there.begin() + static_cast<std::ptrdiff_t>(stripe_at(i))))
                return complain("stripe " + std::to_string(i) + " of shared is missing after " +
                                after);
    }

    // A file with bytes: parts of pages that have to be read first; and again after it was closed.
    void change_old() {
        shadow_file file{written_folder::old(number_), -1, test::pattern(number_, old_bytes)};
        if (!open_it(file, open_read_write)) return;
        write_at(file, page + 10, 20);
        write_at(file, 3 * page - 5, 10);
        read_at(file, 0, old_bytes);
        close_it(file);
        if (!open_it(file, open_read_write)) return;
        left_.pop_back();
        write_at(file, old_bytes - 3, 10);
        read_at(file, 0, old_bytes + 100);
        fsync_it(file);
        close_it(file);
    }

    [[nodiscard]] bool is_there(const std::string& file) const {
        return ::access((from_.folder / file).c_str(), F_OK) == 0;
    }

    // By the host, as kernels cannot. An error leaves both names as they were.
    bool rename_it(shadow_file& file, const std::string& to) {
        const int code = rt_.rename(file.name, to);
        const bool left = is_there(file.name);
        if (left == (code == 0))
            complain("rename of " + file.name + " gave " + error_text(code) + ", and the name is " +
                     (left ? "there" : "gone"));
        if (tell("rename", code)) return false;
        file.name = to;
        return true;
    }

    // Another name while bytes wait in the cache; and a closed file whose bytes may wait there too
    // takes the name from it.
    void rename_written(std::uint32_t round) {
        const std::string kind = std::to_string(round) + "-";
        shadow_file file{name("before" + kind), -1, {}};
        if (!open_it(file, open_read_write | open_create | open_exclusive)) return;
        write_at(file, 0, 2 * page + 9);
        rename_it(file, name("after" + kind));
        write_at(file, page - 3, 10);
        read_at(file, 0, 3 * page);
        if (round == 0) fsync_it(file);
        close_it(file);
        shadow_file other{name("other" + kind), -1, {}};
        if (!open_it(other, open_write | open_create | open_exclusive)) return;
        write_at(other, 0, page + 100);
        close_it(other);
        if (!rename_it(left_.back(), file.name)) return;
        left_.erase(left_.end() - 2);
    }

    // The name goes while bytes wait in the cache. An open descriptor goes on, and a new file of
    // that name is another.
    void unlink_written(std::uint32_t round) {
        shadow_file file{name("gone" + std::to_string(round) + "-"), -1, {}};
        if (!open_it(file, open_read_write | open_create | open_exclusive)) return;
        write_at(file, 0, 2 * page + 9);
        const int code = unlink(lane{}, fs_, file.name.c_str());
        if (is_there(file.name) == (code == 0))
            complain("unlink gave " + error_text(code) + ", and the name is " +
                     (code == 0 ? "there" : "gone"));
        if (tell("unlink", code)) return close_it(file);
        const int found = open(lane{}, fs_, file.name.c_str());
        if (found >= 0) complain(file.name + " was opened after unlink");
        if (found >= 0 || (found != -ENOENT && tell("open after unlink", found)))
            close(lane{}, fs_, found);
        write_at(file, page, 50);
        read_at(file, 0, 3 * page);
        if (round == 0) tell("fsync after unlink", fsync(lane{}, fs_, file.fd));
        tell("close after unlink", close(lane{}, fs_, file.fd));
        shadow_file next{file.name, -1, {}};
        if (!open_it(next, open_write | open_create | open_exclusive)) return;
        write_at(next, 5, 70);
        close_it(next);
    }

    runtime& rt_;
    const runtime_ref fs_;
    const written_folder& from_;
    const std::uint32_t number_, threads_;
    const std::function<bool(std::int64_t)> excused_;
    std::vector<std::uint64_t> stripes_;  // of the shared file, that were written whole
    std::vector<shadow_file> left_;       // closed, and to be looked at once the fault is gone
    std::string complaints_;
    std::uint32_t errors_ = 0;
    std::uint64_t writes_ = 0;
};

inline options writing_options(const written_folder& from, io_method io,
                               std::uint32_t frame_wait_ms) {
    options o = test::small_options(from.folder);
    o.writable = true;
    o.cache_bytes = 16 * page;
    if (io == io_method::pread)
        // In these pages go when their frames are needed, in the others before.
        o.write_behind_bytes = o.cache_bytes;
    o.table_bytes = 128 * 1024;
    o.max_files = 32;
    o.service_threads = 2;
    o.io = io;
    o.frame_wait_ms = frame_wait_ms;
    o.request_wait_ms = 20000;
    return o;
}

inline host::runtime_hooks writing_hooks(faulty_environment& disk) {
    host::runtime_hooks hooks;
    hooks.env = &disk;
    hooks.max_handles = 6;
    hooks.ring_slots = 8;
    return hooks;
}

// All threads at once; what they complain of.
inline std::string run_writers(std::vector<write_scenario>& writers) {
    std::vector<std::thread> team;
    for (write_scenario& writer : writers) team.emplace_back([&writer] { writer.run(); });
    for (std::thread& thread : team) thread.join();
    std::string out;
    for (const write_scenario& writer : writers) out += writer.complaints();
    return out;
}

inline std::vector<write_scenario> make_writers(runtime& rt, const written_folder& from,
                                                std::uint32_t threads,
                                                const std::function<bool(std::int64_t)>& excused) {
    std::vector<write_scenario> out;
    for (std::uint32_t i = 0; i < threads; ++i) out.emplace_back(rt, from, i, threads, excused);
    return out;
}

}  // namespace penstock::fault
