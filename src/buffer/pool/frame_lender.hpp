// Frames of a buffer, lent to kernels: what of a file's pages a service thread may copy, and until
// when (docs/protocol/frames.md).
//
// Files that the buffer only reads are lent, so no page of them is dirty. A page is lent if it is
// what the file has. That is so while nothing has the file open to write, and it has the identity
// that it had before the first of its pages was loaded, when nothing had it open to write either
// (os/file_kind.hpp); on tmpfs also only if no open to write was passed through a mount since then
// (hub/file_version.hpp). This is asked after the bytes were copied: a change that came before is
// seen, and one that comes later leaves bytes that the file had meanwhile. A buffer has zeros
// behind the end that it knows, so that has to be the one of the identity.
//
// Nothing here waits for a session, the disk or a kernel: what is not to be had at once is not
// lent.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "buffer/pool/manager.hpp"
#include "hub/file_version.hpp"
#include "hub/hub.hpp"

namespace penstock::buffer {

// Which files a buffer has, for readers that know them by device and inode, and the version of each
// that its pages are of. Thread-safe.
class lent_files {
public:
    // What a file was like when no page of it was here, if that is proof.
    struct version : host::file_version {
        std::uint64_t turn = 0;  // another where the file was removed or its size set since
    };

    lent_files(const manager_settings& settings, host::environment& env)
        : env_(env),
          unchecked_(settings.lends_unchecked),
          files_(std::make_unique<entry[]>(settings.files)) {}

    ~lent_files() {
        for (const auto& [key, number] : numbers_)
            if (told_ != nullptr) told_->frames.known.remove(key);
    }
    lent_files(const lent_files&) = delete;
    lent_files& operator=(const lent_files&) = delete;

    // Before the first file is added.
    void tell(host::hub& all) { told_ = &all; }

    // A file that is about to be added: nothing is known where it cannot be looked at.
    [[nodiscard]] version look(int fd) const {
        version out;
        host::file_facts facts;
        if (told_ == nullptr || env_.facts(fd, facts) != 0) return {};
        const host::file_key key = host::key_of(facts.identity);
        return host::look_at_version(env_, told_->passed, key, fd, out) == 0 ? out : version{};
    }
    // Before any page of the file is loaded, and after look().
    void add(std::uint32_t number, const version& seen) {
        const host::file_key key = host::key_of(seen.identity);
        if (key == host::file_key{}) return;
        const std::lock_guard hold(mutex_);
        files_[number].now = seen;
        files_[number].now.turn = files_[number].turn;
        numbers_.emplace(key, number);
        if (told_ != nullptr) told_->frames.known.add(key);
    }
    // Before its pages leave. Waits for copies from host frames that are under way; of a copy from
    // device frames nothing is taken any more.
    void remove(std::uint32_t number) {
        end_version(number);
        const std::lock_guard hold(mutex_);
        const host::file_key key = host::key_of(files_[number].now.identity);
        const auto [begin, end] = numbers_.equal_range(key);
        const auto found =
            std::find_if(begin, end, [&](const auto& entry) { return entry.second == number; });
        if (found == end) return;
        numbers_.erase(found);
        if (told_ != nullptr) told_->frames.known.remove(key);
    }
    // What is known of the file is void: before its size is set.
    void end_version(std::uint32_t number) { ++files_[number].turn; }

    // All pages of the file leave between the two: what is loaded after the first is of the file as
    // it was then, or of a later one, which has another identity.
    [[nodiscard]] version begin_renewal(std::uint32_t number, int fd) const {
        const std::uint64_t turn = files_[number].turn;
        version out = look(fd);
        out.turn = turn;
        return out;
    }
    void renew(std::uint32_t number, const version& seen) {
        const std::lock_guard hold(mutex_);
        version& now = files_[number].now;
        if (now.identity.same_file(seen.identity)) now = seen;
    }

    // By a service thread. use(number, version) for each number that the file has, until that gives
    // something; none of them is removed meanwhile. Nothing where one comes or goes just then.
    template <typename Use>
    auto find(const host::file_key& file, const Use& use)
        -> decltype(use(std::uint32_t{}, std::declval<const version&>())) {
        const std::shared_lock hold(mutex_, std::try_to_lock);
        if (!hold.owns_lock()) return {};
        const auto [begin, end] = numbers_.equal_range(file);
        for (auto at = begin; at != end; ++at)
            if (is_proof(at->second, files_[at->second].now))
                if (auto out = use(at->second, files_[at->second].now)) return out;
        return {};
    }

    // After the bytes were copied: they are, or were since the copy began, what the file has.
    [[nodiscard]] bool is_as_known(std::uint32_t number, const version& known,
                                   const host::frame_wish& wanted) const {
        if (unchecked_) return true;
        host::file_version now;
        return told_ != nullptr && is_proof(number, known) &&
               host::look_at_version(wanted.env, told_->passed, wanted.file, wanted.fd, now) == 0 &&
               known.is_same(now) && now.is_proof;
    }

private:
    struct entry {
        std::atomic<std::uint64_t> turn{0};
        version now;  // guarded by mutex_
    };
    [[nodiscard]] bool is_proof(std::uint32_t number, const version& known) const {
        return unchecked_ || (known.is_proof && files_[number].turn == known.turn);
    }

    host::environment& env_;
    const bool unchecked_;
    const std::unique_ptr<entry[]> files_;
    host::hub* told_ = nullptr;  // null: nothing is lent
    mutable std::shared_mutex mutex_;
    std::multimap<host::file_key, std::uint32_t> numbers_;  // guarded by mutex_
};

// Has pages of a file leave, by forget(end): when all have, the file is lent as it is from here on.
template <typename Forget>
int forget_lent(lent_files& files, std::uint32_t number, int fd, std::uint64_t first,
                std::uint64_t end, const Forget& forget) {
    const bool all = first == 0 && end == ~std::uint64_t{0};
    const lent_files::version seen = all ? files.begin_renewal(number, fd) : lent_files::version{};
    const int code = forget(end);
    if (code == 0 && all) files.renew(number, seen);
    return code;
}

// The source of pages that a manager is: page after page, as long as they can be had.
class frame_lender : public host::frame_source {
public:
    frame_lender(const manager_settings& settings, host::environment& env)
        : files(settings, env), page_bytes_(settings.page_bytes) {}

    std::uint64_t copy(const host::frame_wish& wanted, std::byte* to) final {
        return files.find(wanted.file, [&](std::uint32_t number, const lent_files::version& known) {
            std::uint64_t done = 0;
            if (!has_size_of(number, known)) return done;
            while (done < wanted.bytes) {
                const std::uint64_t at = wanted.offset + done, in_page = at % page_bytes_,
                                    count = std::min(page_bytes_ - in_page, wanted.bytes - done);
                if (!copy_part({at / page_bytes_, number}, in_page, count, to + done)) break;
                done += count;
            }
            return done != 0 && files.is_as_known(number, known, wanted) ? done : 0;
        });
    }
    std::shared_ptr<host::frame_copy> begin(const host::frame_wish& wanted) final {
        return files.find(wanted.file, [&](std::uint32_t number, const lent_files::version& known) {
            return has_size_of(number, known) ? begin_part(number, known, wanted) : nullptr;
        });
    }

    lent_files files;

protected:
    // As the buffer has it, of a file that is not removed meanwhile.
    [[nodiscard]] virtual std::uint64_t size_of(std::uint32_t number) const = 0;
    // Bytes of a page, if a frame of the host has it and no session changes it just now.
    virtual bool copy_part(page_id id, std::uint64_t from, std::uint64_t bytes, std::byte* to) = 0;
    // Pages from the first of the wish on that frames of the device have. Null: none.
    virtual std::shared_ptr<host::frame_copy> begin_part(std::uint32_t, const lent_files::version&,
                                                         const host::frame_wish&) {
        return nullptr;
    }

    const std::uint64_t page_bytes_;

private:
    // Once is enough: before another size is set `known` is void.
    [[nodiscard]] bool has_size_of(std::uint32_t number, const lent_files::version& known) const {
        return size_of(number) == known.identity.size_bytes;
    }
};

}  // namespace penstock::buffer
