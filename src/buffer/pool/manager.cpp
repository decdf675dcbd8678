#include "buffer/pool/manager.hpp"

#include <algorithm>
#include <cerrno>

#include "buffer/core/check.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/pool/dedu_manager.hpp"
#include "buffer/pool/manager_bring.hpp"
#include "buffer/pool/manager_flush.hpp"
#include "buffer/pool/manager_forget.hpp"
#include "buffer/pool/paged_session.hpp"

namespace penstock::buffer {

namespace {

template <typename Order>
class session_of final : public paged_session {
public:
    session_of(manager_state<Order>& all, std::uint32_t number) : all_(all) {
        room_.number = number;
        room_.hits.reserve(manager_state<Order>::most_untold_hits + all.settings().fixed_pages);
        room_.actions.reserve(8);
        room_.batch.reserve(1);
        room_.fresh.reserve(all_.settings().fixed_pages);
    }
    ~session_of() override { all_.close_session(room_); }

    int fix(page_id id, use_kind kind, fixed_page& out) override {
        return all_.fix(room_, id, kind, page_content::read, out);
    }
    int fix_fresh(page_id id, fixed_page& out) override {
        return all_.fix(room_, id, use_kind::write, page_content::fresh, out);
    }
    void unfix(const fixed_page& page, bool changed) override { all_.unfix(room_, page, changed); }
    int flush(std::uint32_t file) override { return all_.flush(room_, file); }
    int resize(std::uint32_t file, std::uint64_t bytes) override {
        return all_.resize(room_, file, bytes);
    }
    int forget(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) override {
        return all_.forget(room_, file, first_page, pages);
    }
    void prefetch(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) override {
        all_.prefetch(room_, file, first_page, pages);
    }
    [[nodiscard]] std::uint32_t number() const override { return room_.number; }

protected:
    int fix_to_fill(page_id id, fixed_page& out) override {
        return all_.fix(room_, id, use_kind::write, page_content::to_fill, out);
    }
    std::uint64_t look_ahead(page_id first, std::uint64_t end) override {
        return all_.look_ahead(room_, first, end);
    }
    [[nodiscard]] std::uint64_t page_bytes() const override { return all_.settings().page_bytes; }
    [[nodiscard]] int find_size(std::uint32_t file, std::uint64_t& bytes) const override {
        return all_.find_size(room_, file, bytes);
    }

private:
    manager_state<Order>& all_;
    session_room room_;
};

}  // namespace

template <typename Order>
int manager_state<Order>::make() {
    const std::uint32_t pages = settings_.host_pages + settings_.device_pages;
    if (const int code = core_.make(
            {settings_.host_pages, settings_.device_pages, 1, pages + 1, settings_.files});
        code != 0)
        return code;
    core_.order().close_by([this](std::uint32_t frame) { return latches_[frame].is_idle(); },
                           [this](std::uint32_t frame) { return close_frame(frame); });
    return 0;
}

template <typename Order>
int manager_state<Order>::add_file(int fd, std::uint64_t bytes, file_access access) {
    const lock hold(mutex_);
    std::uint32_t number = 0;
    while (number < settings_.files && files_[number].in_use) ++number;
    if (number == settings_.files) return -EMFILE;
    file& added = files_[number];
    if (const int code = grow(added, bytes); code != 0) return code;
    added.failures = 0;
    added.has_lost = false;
    added.fd = fd;
    added.is_writable = access == file_access::read_write;
    added.begins_reads = begins_reads(settings_, fd);
    added.in_use = true;
    states_.open(number);
    return static_cast<int>(number);
}

template <typename Order>
std::unique_ptr<session> manager_state<Order>::open_session() try {
    const lock hold(mutex_);
    for (std::uint32_t number = 0; number < settings_.sessions; ++number)
        if (!room_in_use_[number]) {
            auto out = std::make_unique<session_of<Order>>(*this, number);
            room_in_use_[number] = true;
            return out;
        }
    return nullptr;
} catch (const std::bad_alloc&) {
    return nullptr;
}

template <typename Order>
void manager_state<Order>::close_session(session_room& s) {
    if (!states_.here()) return s.begun.abandon();
    const lock hold(mutex_);
    tell_hits(s);
    room_in_use_[s.number] = false;
}

template <typename Order>
manager_contents manager_state<Order>::contents() const {
    const lock hold(mutex_);
    return contents_of<manager_contents>(core_.inside());
}

template <typename Order>
manager_counts manager_state<Order>::counts() const {
    const lock hold(mutex_);
    manager_counts out = counts_;
    out.host_hits += untold_hits_;
    out.pages = core_.inside().pages.in_use();
    out.device_pages = core_.inside().device.in_use();
    out.device_bytes = out.device_pages * settings_.page_bytes;
    return out;
}

template <typename Order>
const char* manager_state<Order>::check() {
    const lock hold(mutex_);
    tell_changes();
    if (const char* const wrong = buffer::check(core_.inside()); wrong != nullptr) return wrong;
    for (std::uint32_t number = 0; number < settings_.files; ++number) {
        std::uint64_t in_core = 0, counted = 0;
        for (std::uint64_t page = 0; page < files_[number].room; ++page) {
            const page_id id{page, number};
            const block* const known = core_.inside().block_of(id, 0);
            const bool in_host = known != nullptr && known->where == side::host;
            if (known != nullptr && page >= files_[number].pages)
                return "a page is in the buffer that its file does not have";
            if (entry(id).is_absent() == in_host)
                return "an entry and the core disagree on whether a page is in the host";
            if (in_host && (!entry(id).names(known->frame) || page_in_[known->frame] != id))
                return "a page has another frame than its entry says";
            if (in_host && !latches_[known->frame].is_idle())
                return "a frame is in use, and no session uses it";
            in_core += known != nullptr;
            if (page % page_group::pages == 0)
                counted += files_[number].groups[page / page_group::pages].in_core;
        }
        if (in_core != counted) return "other pages of a file are in the buffer than counted";
    }
    return nullptr;
}

namespace {

status check_count(const char* name, std::uint32_t count, std::uint32_t most) {
    if (count != 0 && count <= most) return {};
    return {-EINVAL, std::string(name) + ": " + std::to_string(count) + "; give 1 to " +
                         std::to_string(most)};
}

}  // namespace

status check_counts(const manager_settings& settings) {
    constexpr std::uint32_t most_files = 1u << 20, most_batch_pages = 1u << 20;
    constexpr std::uint32_t most_window_pages = 1u << 16;
    if (status s = check_count("files", settings.files, most_files); !s) return s;
    if (status s = check_count("batch_pages", settings.batch_pages, most_batch_pages); !s) return s;
    if (settings.policy != policy_kind::dedu) return {};
    return check_count("dedu_settings::window_pages", settings.dedu.window_pages,
                       most_window_pages);
}

frames_shape frames_for(const manager_settings& settings) {
    if (settings.policy == policy_kind::dedu) return dedu_frames_for(settings);
    constexpr std::uint32_t desks = manager_state<lru_order>::most_desks;
    return {std::uint64_t{settings.host_pages} + settings.sessions, settings.device_pages,
            settings.page_bytes, settings.sessions + desks, std::max(settings.sessions, 1u)};
}

int manager::begin_close(session* by, std::uint32_t number) {
    std::uint32_t closer = file_states::no_session;
    if (by != nullptr) closer = static_cast<paged_session*>(by)->number();
    const auto wait = std::chrono::milliseconds(settings().wait_ms);
    if (!states().here()) return -ECHILD;
    return states().shut(number, closer, std::chrono::steady_clock::now() + wait);
}

int manager::end_close(session* by, std::uint32_t number, bool flushes) {
    int code = flushes ? by->flush(number) : 0;
    if (code == 0) code = drop_file(number);
    if (code != 0) states().reopen(number);
    return code;
}

int manager::remove_file(std::uint32_t number) {
    const int code = begin_close(nullptr, number);
    return code != 0 ? code : end_close(nullptr, number, false);
}

status manager::make(const manager_settings& settings, device_frames& frames,
                     host::environment& env, std::unique_ptr<manager>& out) try {
    const std::uint64_t needed = least_host_pages(settings.sessions, settings.fixed_pages);
    if (settings.sessions == 0 || settings.fixed_pages == 0 || settings.page_bytes == 0 ||
        settings.page_bytes % frame_grain != 0)
        return {-EINVAL,
                "a buffer needs a session, a page that it may fix, and pages of a multiple of " +
                    std::to_string(frame_grain) + " bytes"};
    if (status s = check_counts(settings); !s) return s;
    if (settings.policy == policy_kind::dedu) return make_dedu_manager(settings, frames, env, out);
    if (settings.policy == policy_kind::native && settings.device_pages != 0)
        return {-EINVAL, "a buffer with the policy native has no pages in a device, and " +
                             std::to_string(settings.device_pages) +
                             " were asked for; give gram, or none"};
    if (settings.host_pages < needed)
        return {-EINVAL, "a buffer of " + std::to_string(settings.host_pages) +
                             " pages in the host is too small for " +
                             std::to_string(settings.sessions) + " sessions that fix " +
                             std::to_string(settings.fixed_pages) + " pages each; give it " +
                             std::to_string(needed)};
    const auto made = [&]<typename Order>(std::unique_ptr<manager_state<Order>> one) -> status {
        if (const int code = one->make(); code != 0)
            return {code, "the buffer's tables: " + error_text(code) + "; give it fewer pages"};
        out = std::move(one);
        return {};
    };
    return settings.order == order_kind::lru
               ? made(std::make_unique<manager_state<lru_order>>(settings, frames, env))
               : made(std::make_unique<manager_state<clock_order>>(settings, frames, env));
} catch (const std::exception&) {  // no memory, or tables that no memory could hold
    return {
        -ENOMEM,
        "the host has no memory for the buffer's tables; give it fewer pages, sessions or files"};
}

}  // namespace penstock::buffer
