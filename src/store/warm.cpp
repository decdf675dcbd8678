#include "store/warm.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "os/file_kind.hpp"
#include "os/own_mounts.hpp"
#include "store/block_object.hpp"
#include "store/version_place.hpp"

namespace penstock::host {

namespace {

// An open file with its facts when it was opened.
class warm_file {
public:
    warm_file(environment& env, const std::string& path, trust_mode trust)
        : env_(env), path_(path), trust_(trust) {
        const int found = env.find(-1, path);
        code_ = found < 0 ? found : env.facts(found, facts_);
        // To open anything else might wait.
        if (code_ == 0 && facts_.is_regular) {
            fd_ = env.open_found(found);
            code_ = fd_ < 0 ? fd_ : env.facts(fd_, facts_);
        }
        if (found >= 0) env.close(found);
        if (fd_ >= 0) read_nothing_ahead(fd_);
    }
    ~warm_file() {
        if (fd_ >= 0) env_.close(fd_);
    }
    warm_file(const warm_file&) = delete;
    warm_file& operator=(const warm_file&) = delete;

    [[nodiscard]] status check() const {
        if (code_ == -EDEADLK) return {code_, "'" + path_ + "' " + why_own(path_)};
        if (code_ != 0)
            return {code_, "'" + path_ + "': " + error_and_cure(code_, "name a file to read")};
        if (!facts_.is_regular || facts_.false_size)
            return {-EINVAL, "'" + path_ + "' is no file with a size; name a regular file"};
        if (!may_change_unseen(facts_, trust_)) return {};
        return facts_.times == file_times::local || tells_version(facts_, trust_) ? changes()
                                                                                  : untold();
    }
    [[nodiscard]] status changes() const {
        return {-EAGAIN, "'" + path_ +
                             "' is being changed, or was just now, so its times do not tell its "
                             "version; try again in some seconds"};
    }
    [[nodiscard]] status untold() const {
        return {-EOPNOTSUPP, "'" + path_ + "': its pages " + when_used_again(facts_.times, trust_)};
    }
    // How long the file has to rest yet, for its times to be proof; 0: it has, or never will.
    [[nodiscard]] std::int64_t rest_ns() const {
        return code_ == 0 ? rest_left_ns(facts_, trust_) : 0;
    }
    [[nodiscard]] bool is_as_before() const {
        file_facts now;
        return env_.facts(fd_, now) == 0 && now.identity == facts_.identity &&
               !may_change_unseen(now, trust_);
    }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const file_identity& version() const { return facts_.identity; }

private:
    environment& env_;
    const std::string path_;
    const trust_mode trust_;
    int fd_ = -1, code_ = 0;
    file_facts facts_;
};

status store_failed(std::int64_t code, warm_counts& counts) {
    counts.store_code = static_cast<int>(code);
    return {counts.store_code,
            "the store failed: " + error_text(code) + "; look after penstock-agent"};
}

}  // namespace

// What is read before a file of a network file system has rested may be of a state that leaves no
// trace in its times. A process that sees the file for the first time waits for that.
status warm_blocks(environment& env, const std::string& path, const warm_settings& settings,
                   const warm_range& range, block_store& store, warm_counts& counts) {
    if (const std::int64_t rest_ns = warm_file(env, path, settings.trust).rest_ns(); rest_ns > 0)
        std::this_thread::sleep_for(std::chrono::nanoseconds(rest_ns));
    const std::uint64_t wait_ns = settings.wait_ns;
    const warm_file file(env, path, settings.trust);
    if (status s = file.check(); !s) return s;
    const file_identity& version = file.version();
    // Once: the file has rested, so it leaves its path in another version, and is not put then.
    version_place place;
    if (const int code = find_place(env, file.fd(), version, place); code == -ESTALE)
        return file.changes();
    else if (code != 0) return {code, "'" + path + "': " + error_and_cure(code)};
    const block_file named{settings.space,     place.path,          place.file_system,
                           version.size_bytes, version.modified_ns, version.changed_ns,
                           place.number};
    std::vector<std::byte> object(block_object_bytes);
    for (std::uint64_t i = 0; i < range.count; ++i) {
        const std::uint64_t number = range.first + i * range.step,
                            bytes = bytes_of_block(version.size_bytes, number);
        if (bytes == 0) break;
        const block_key key = key_of(named, number);
        const std::span<std::byte> of_block(object.data(), bytes + block_tail_bytes);
        std::int64_t code = store.get(key, of_block, wait_ns, true);
        if (code > 0 && is_whole(of_block.first(static_cast<std::size_t>(code)), bytes, key)) {
            ++counts.had;
            continue;
        }
        const bool was_bad = code > 0;
        if (code < 0 && code != -ENOENT) return store_failed(code, counts);
        code = read_all(env, file.fd(), object.data(), bytes, number * block_bytes);
        if (code < 0) return {static_cast<int>(code), "'" + path + "': " + error_text(code)};
        if (code != static_cast<std::int64_t>(bytes) || !file.is_as_before()) return file.changes();
        write_tail(object.data(), bytes, key);
        code = store.put(key, of_block, was_bad, wait_ns);
        if (code == -ENOSPC) ++counts.full;
        else if (code == 0) ++counts.put;
        else return store_failed(code, counts);
    }
    return {};
}

}  // namespace penstock::host
