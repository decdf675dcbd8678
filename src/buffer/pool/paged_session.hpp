// Bytes of a file, through pages that are fixed for as long as they are copied.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "buffer/pool/manager.hpp"

namespace penstock::buffer {

// Pages that are worth reading ahead at a time: of those in the host that no thread may have fixed,
// each session's share.
inline std::uint64_t most_ahead(const manager_settings& settings) {
    const std::uint64_t fixed = std::uint64_t{settings.sessions} * (settings.fixed_pages + 1),
                        all = settings.host_pages;
    return std::max<std::uint64_t>(1, (all - std::min(all, fixed)) / settings.sessions);
}

// Which numbers of sessions are taken. Its lock is taken alone.
class session_numbers {
public:
    explicit session_numbers(std::uint32_t sessions) : in_use_(sessions) {}

    // make(number): a session. Null: there are as many as can be, or there is no memory.
    template <typename Make>
    std::unique_ptr<session> open(const Make& make) try {
        const std::lock_guard hold(mutex_);
        const auto free = std::find(in_use_.begin(), in_use_.end(), false);
        if (free == in_use_.end()) return nullptr;
        std::unique_ptr<session> out = make(static_cast<std::uint32_t>(free - in_use_.begin()));
        *free = true;
        return out;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    void give_back(std::uint32_t number) {
        const std::lock_guard hold(mutex_);
        in_use_[number] = false;
    }

private:
    std::mutex mutex_;
    std::vector<bool> in_use_;
};

// What a session of either manager does with stretches of bytes: by pages that it fixes.
class paged_session : public session {
public:
    std::int64_t read(std::uint32_t file, std::uint64_t offset, std::byte* to,
                      std::uint64_t bytes) override {
        const std::uint64_t end = bytes > ~offset
                                      ? ~std::uint64_t{0}
                                      : (offset + bytes + page_bytes() - 1) / page_bytes();
        std::uint64_t ask = 0;
        return each_part(
            file, offset, bytes,
            [&](page_id id, std::uint64_t in_page, std::uint64_t count, std::uint64_t done) {
                if (id.page >= ask) ask = look_ahead(id, end);
                fixed_page page;
                if (const int code = fix(id, use_kind::read, page); code != 0) return code;
                std::memcpy(to + done, page.data + in_page, count);
                unfix(page, false);
                return 0;
            });
    }
    std::int64_t write(std::uint32_t file, std::uint64_t offset, const std::byte* from,
                       std::uint64_t bytes) final {
        std::uint64_t end = 0;
        if (const int code = find_size(file, end); code != 0) return code;
        return each_part(
            file, offset, bytes,
            [&](page_id id, std::uint64_t in_page, std::uint64_t count, std::uint64_t done) {
                fixed_page page;
                // All that the file has of the page.
                const bool whole = in_page == 0 &&
                                   (count == page_bytes() || id.page * page_bytes() + count == end);
                const int code = whole ? fix_to_fill(id, page) : fix(id, use_kind::write, page);
                if (code != 0) return code;
                std::memcpy(page.data + in_page, from + done, count);
                if (whole) std::memset(page.data + count, 0, page_bytes() - count);
                unfix(page, true);
                return 0;
            });
    }

    // Of this session, below manager_settings::sessions.
    [[nodiscard]] virtual std::uint32_t number() const = 0;
    // Its hits are counted; not in a child of the process.
    virtual void tell_hits() = 0;

protected:
    // As fix_fresh() of a page that will be unfixed as changed.
    virtual int fix_to_fill(page_id id, fixed_page& out) { return fix_fresh(id, out); }
    // Pages from `first` to before `end` are wanted one after the other. From where to ask again.
    virtual std::uint64_t look_ahead(page_id, std::uint64_t end) { return end; }
    [[nodiscard]] virtual std::uint64_t page_bytes() const = 0;
    // 0; -EBADF, no such file; or -ECHILD.
    [[nodiscard]] virtual int find_size(std::uint32_t file, std::uint64_t& bytes) const = 0;

private:
    template <typename Action>
    std::int64_t each_part(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes,
                           const Action& action) {
        std::uint64_t end = 0;
        if (const int code = find_size(file, end); code != 0) return code;
        bytes = offset >= end ? 0 : std::min(bytes, end - offset);
        for (std::uint64_t done = 0; done < bytes;) {
            const std::uint64_t at = offset + done, in_page = at % page_bytes(),
                                count = std::min(page_bytes() - in_page, bytes - done);
            const int code = action(page_id{at / page_bytes(), file}, in_page, count, done);
            if (code == 0) {
                done += count;
                continue;
            }
            // The file may have become shorter meanwhile.
            const bool is_cut = code == -EINVAL && find_size(file, end) == 0 && at >= end;
            return done != 0 || is_cut ? static_cast<std::int64_t>(done) : code;
        }
        return static_cast<std::int64_t>(bytes);
    }
};

}  // namespace penstock::buffer
