// The host's side of the model test of writes: makes the files, changes them as an ordinary program
// while no runtime has them open or beside the runtime, and compares them with their shadows
// through reads of its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "model/write_plan.hpp"

namespace penstock::model {

class written_files {
public:
    written_files(const write_shape& shape, std::string folder)
        : shape_(shape), folder_(std::move(folder)) {
        const std::uint32_t files = shape_.files();
        versions_.resize(files);
        touched_.resize(std::size_t{files} * touched_pages * 2);
        for (std::uint32_t file = 0; file < files; ++file) {
            const std::uint64_t size = shape_.size_at_first(file);
            versions_[file].resize(shape_.capacity(file), hole);
            shadows_.push_back({versions_[file].data(), versions_[file].size(), size, size, 1,
                                &touched_[std::size_t{file} * touched_pages * 2]});
            plans_.push_back({use::idle, 0, 0, 0, 0, 0, 1, 0});
            handles_.push_back(-1);
            make(file);
            if (size > 0) write_range(file, 0, size);
        }
    }
    ~written_files() {
        for (std::uint32_t file = 0; file < shape_.files(); ++file) forget(file);
    }
    written_files(const written_files&) = delete;
    written_files& operator=(const written_files&) = delete;

    [[nodiscard]] std::string path_of(std::uint32_t file) const {
        return folder_ + "/f" + std::to_string(file);
    }
    std::vector<file_plan>& plans() { return plans_; }
    std::vector<file_shadow>& shadows() { return shadows_; }
    [[nodiscard]] const int* handles() const { return handles_.data(); }

    // Called while no runtime has any of them open. Makes plans for the next round, and now and
    // then a change that the runtime has to notice.
    void begin_round(std::uint64_t round) {
        for (std::uint32_t file = 0; file < shape_.files(); ++file) {
            const std::uint64_t h = mixed(shape_.seed ^ 0x2f, round, file);
            if (h % 4 == 0 && size_of(file) > 0) {
                const std::uint64_t at = mix64(h) % size_of(file);
                write_range(
                    file, at,
                    std::min(size_of(file) - at, 1 + mix64(h ^ 1) % (2 * shape_.page_bytes)));
            }
            if (h % 32 == 3 && size_of(file) > 0)
                cut(file, size_of(file) - mix64(h) % (1 + size_of(file) / 4));
            plans_[file] = write_planner(shape_).plan(file, round, size_of(file));
            if (plans_[file].absent != 0) remove(file);
            if (plans_[file].usage == use::log) shadows_[file].size_begun = ~std::uint64_t{0} >> 1;
        }
    }

    // The ordinary program's share of a file that others write at the same time: one write of it.
    // Bytes written.
    std::uint64_t write_own(std::uint32_t file, std::uint64_t h) {
        const file_plan& plan = plans_[file];
        if (plan.ordinary == 0) return 0;  // its size may be changing
        const std::uint64_t units = size_of(file) / plan.stride;
        if (units == 0) return 0;
        const std::uint64_t unit = h % units / plan.owners() * plan.owners() + plan.owners() - 1;
        if (unit >= units) return 0;
        const std::uint64_t at = unit * plan.stride,
                            bytes = std::min(plan.stride, longest_write(shape_.page_bytes));
        write_range(file, at, bytes);
        return bytes;
    }

    // Opens it again and reads all of it. What is wrong, or nothing.
    [[nodiscard]] std::string compare(std::uint32_t file, const char* when) {
        const int fd = ::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return shadows_[file].there == 0 ? "" : path_of(file) + " " + when + ": is not there";
        std::string wrong;
        const off_t size = ::lseek(fd, 0, SEEK_END);
        if (size != static_cast<off_t>(size_of(file)))
            wrong = path_of(file) + " " + when + ": has " + std::to_string(size) +
                    " bytes, expected " + std::to_string(size_of(file));
        buffer_.resize(std::size_t{1} << 20);
        for (std::uint64_t at = 0; wrong.empty() && at < size_of(file);) {
            const ssize_t got = ::pread(fd, buffer_.data(), buffer_.size(), static_cast<off_t>(at));
            require(got > 0, "read a file");
            wrong = compare_bytes(file, at, buffer_.data(), static_cast<std::uint64_t>(got), when);
            at += static_cast<std::uint64_t>(got);
        }
        ::close(fd);
        return wrong;
    }
    [[nodiscard]] std::string compare_bytes(std::uint32_t file, std::uint64_t at,
                                            const std::uint8_t* bytes, std::uint64_t count,
                                            const char* when) const {
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint8_t expected =
                written_byte(shape_.seed, file, at + i, versions_[file][at + i]);
            if (bytes[i] == expected) continue;
            return path_of(file) + " " + when + ": FAILED: byte " + std::to_string(at + i) +
                   " is " + std::to_string(bytes[i]) + ", expected " + std::to_string(expected) +
                   ", version " + std::to_string(versions_[file][at + i] & ~hole) + ", owner " +
                   std::to_string(plans_[file].usage == use::shared ? plans_[file].owner_of(at + i)
                                                                    : 0) +
                   " of " + std::to_string(plans_[file].owners()) + ", stride " +
                   std::to_string(plans_[file].stride);
        }
        return "";
    }

    // Every record of every actor is in the log once and whole, and nothing else. `records`: how
    // many each actor appended.
    [[nodiscard]] std::string compare_log(std::uint32_t file, std::uint64_t round,
                                          const std::uint32_t* records, std::uint32_t actors,
                                          std::uint64_t& found) {
        std::vector<std::uint8_t> bytes = whole(file);
        std::vector<std::vector<bool>> seen(actors);
        for (std::uint32_t i = 0; i < actors; ++i) seen[i].resize(records[i]);
        std::uint64_t at = 0, left = 0;
        for (std::uint32_t i = 0; i < actors; ++i) left += records[i];
        const auto complain = [&](const char* complaint) {
            return path_of(file) + ": FAILED: byte " + std::to_string(at) + " of " +
                   std::to_string(bytes.size()) + ": " + complaint;
        };
        while (at < bytes.size()) {
            record_head got{};
            if (bytes.size() - at < record_head_bytes) return complain("a torn record");
            std::memcpy(&got, &bytes[at], record_head_bytes);
            if (got.actor >= actors || got.number >= records[got.actor])
                return complain("a record that no actor appended");
            const record_head expected = head_of(shape_.seed, round, got.actor, got.number);
            if (std::memcmp(&got, &expected, sizeof got) != 0 ||
                bytes.size() - at < expected.length)
                return complain("a broken record");
            for (std::uint32_t i = record_head_bytes; i < expected.length; ++i)
                if (bytes[at + i] != record_byte(expected, i))
                    return complain("a record with a wrong byte");
            if (seen[got.actor][got.number]) return complain("a record for the second time");
            seen[got.actor][got.number] = true;
            at += expected.length;
            --left;
            ++found;
        }
        return left == 0 ? "" : complain("records are missing");
    }

    // Plain handles on the files that are there, to look into them meanwhile.
    void open_handles() {
        for (std::uint32_t file = 0; file < shape_.files(); ++file)
            if (handles_[file] < 0)
                handles_[file] = ::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC);
    }
    [[nodiscard]] std::uint64_t size_of(std::uint32_t file) const {
        return shadows_[file].size_done;
    }

private:
    static void require(bool good, const std::string& action) {
        if (good) return;
        std::perror(("model: the host could not " + action).c_str());
        std::abort();
    }
    void make(std::uint32_t file) {
        const int fd =
            ::open(path_of(file).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
        require(fd >= 0, "create " + path_of(file));
        ::close(fd);
    }
    // As an ordinary program: the next version of a range of the file.
    void write_range(std::uint32_t file, std::uint64_t at, std::uint64_t bytes) {
        const int fd = ::open(path_of(file).c_str(), O_WRONLY | O_CLOEXEC);
        require(fd >= 0, "open " + path_of(file));
        std::vector<std::uint8_t> next(bytes);
        for (std::uint64_t i = 0; i < bytes; ++i)
            next[i] =
                written_byte(shape_.seed, file, at + i, next_version(shadows_[file].at(at + i)));
        for (std::uint64_t done = 0; done < bytes;) {
            const ssize_t got =
                ::pwrite(fd, next.data() + done, bytes - done, static_cast<off_t>(at + done));
            require(got > 0, "write");
            done += static_cast<std::uint64_t>(got);
        }
        ::close(fd);
        for (std::uint64_t i = at; i < at + bytes; ++i)
            atomic_store<order::relaxed>(&versions_[file][i], next_version(shadows_[file].at(i)));
    }
    void cut(std::uint32_t file, std::uint64_t size) {
        require(::truncate(path_of(file).c_str(), static_cast<off_t>(size)) == 0,
                "cut " + path_of(file));
        for (std::uint64_t i = size; i < size_of(file); ++i) versions_[file][i] |= hole;
        shadows_[file].size_begun = shadows_[file].size_done = size;
    }
    void remove(std::uint32_t file) {
        forget(file);
        require(::unlink(path_of(file).c_str()) == 0 || errno == ENOENT, "remove " + path_of(file));
        for (version& v : versions_[file]) v |= hole;
        shadows_[file].size_begun = shadows_[file].size_done = shadows_[file].there = 0;
    }
    void forget(std::uint32_t file) {
        if (handles_[file] >= 0) ::close(handles_[file]);
        handles_[file] = -1;
    }
    std::vector<std::uint8_t> whole(std::uint32_t file) {
        const int fd = ::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC);
        require(fd >= 0, "open " + path_of(file));
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)));
        for (std::uint64_t done = 0; done < bytes.size();) {
            const ssize_t got =
                ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
            require(got > 0, "read a log");
            done += static_cast<std::uint64_t>(got);
        }
        ::close(fd);
        return bytes;
    }

    const write_shape shape_;
    const std::string folder_;
    std::vector<std::vector<version>> versions_;
    std::vector<std::uint32_t> touched_;
    std::vector<file_shadow> shadows_;
    std::vector<file_plan> plans_;
    std::vector<int> handles_;
    std::vector<std::uint8_t> buffer_;
};

}  // namespace penstock::model
