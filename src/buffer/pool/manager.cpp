#include "buffer/pool/manager.hpp"

#include <algorithm>
#include <cerrno>

#include "buffer/core/check.hpp"
#include "buffer/pool/dedu_manager.hpp"
#include "buffer/pool/page_session.hpp"
#include "buffer/pool/paged_session.hpp"

namespace penstock::buffer {

namespace {

template <typename Order>
class page_manager final : public manager {
public:
    page_manager(const manager_settings& settings, device_frames& frames, host::environment& env)
        : all_(settings, frames, env) {}
    int make() { return all_.locked.make(all_.settings); }

    int add_file(int fd, std::uint64_t bytes, file_access access) override {
        const bool is_lent = access == file_access::read;
        const auto seen = is_lent ? all_.lender.files.look(fd) : lent_files::version{};
        const lock hold(all_.locked.mutex);
        const int number = all_.pages.free_number();
        if (number < 0) return number;
        const auto file_number = static_cast<std::uint32_t>(number);
        frame_directory::file& added = all_.pages.file_at(file_number);
        if (const int code = all_.pages.grow(added, bytes); code != 0) return code;
        all_.flusher.forget_losses(file_number);
        added.storage.reset();
        added.fd = fd;
        added.is_writable = access == file_access::read_write;
        added.begins_reads = begins_reads(all_.settings, fd);
        added.in_use = true;
        all_.lender.files.add(file_number, seen);
        all_.states.open(file_number);
        return number;
    }
    std::unique_ptr<session> open_session() override {
        return all_.sessions.open([&](std::uint32_t number) {
            return std::make_unique<page_session<Order>>(all_, number);
        });
    }
    [[nodiscard]] manager_contents contents() const override {
        const lock hold(all_.locked.mutex);
        return contents_of<manager_contents>(all_.locked.core.inside());
    }
    [[nodiscard]] manager_counts counts() const override {
        const lock hold(all_.locked.mutex);
        const core_tables& known = all_.locked.core.inside();
        manager_counts out = all_.locked.counts;
        out.host_hits += all_.uncounted_hits;
        if (all_.locked.part) {
            const device_watch& watch = all_.locked.part->watch();
            out.stand_backs = watch.times_back();
            out.stands_back = watch.now() == device_watch::state::standing_back;
        }
        out.pages = known.pages.in_use();
        out.device_pages = known.device.in_use();
        out.device_bytes = out.device_pages * all_.settings.page_bytes;
        return out;
    }
    [[nodiscard]] std::optional<failed_write> last_failed_write() const override {
        return all_.mover.failures().get();
    }
    [[nodiscard]] const char* check() override {
        const lock hold(all_.locked.mutex);
        all_.locked.tell_changes();
        if (const char* const wrong = buffer::check(all_.locked.core.inside()); wrong != nullptr)
            return wrong;
        return all_.pages.check(all_.locked.core.inside());
    }
    [[nodiscard]] const manager_settings& settings() const override { return all_.settings; }
    void lend_to(host::hub& all) override {
        all_.lender.files.tell(all);
        all.frames.enter(all_.lender);
    }
    void leave(host::hub& all) override { all.frames.leave(all_.lender); }
    void free_number(std::uint32_t number) override {
        const lock hold(all_.locked.mutex);
        frame_directory::file& closed = all_.pages.file_at(number);
        all_.pages.clear(closed);
        all_.states.remove(number);  // before the number may be another file's
        closed.in_use = false;
    }

protected:
    [[nodiscard]] file_states& states() override { return all_.states; }
    int drop_pages(std::uint32_t number) override {
        all_.lender.files.remove(number);
        return all_.changes.forget(number, 0, ~std::uint64_t{0}, deadline::max());
    }

private:
    using lock = typename locked_core<Order>::lock;

    page_shared<Order> all_;
};

}  // namespace

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
    constexpr std::uint32_t desks = page_mover::most_desks;
    return {std::uint64_t{settings.host_pages} + settings.sessions +
                lender_slots::of(settings).frames(),
            settings.device_pages, settings.page_bytes, settings.sessions + desks,
            std::max(settings.sessions, 1u)};
}

void manager::tell_hits(session& idle) { static_cast<paged_session&>(idle).tell_hits(); }

int manager::begin_close(session* by, std::uint32_t number) {
    std::uint32_t closer = file_states::no_session;
    if (by != nullptr) closer = static_cast<paged_session*>(by)->number();
    const auto wait = std::chrono::milliseconds(settings().wait_ms);
    if (!states().here()) return -ECHILD;
    return states().shut(number, closer, std::chrono::steady_clock::now() + wait);
}

int manager::end_close(session* by, std::uint32_t number, bool flushes) {
    int code = 0;
    try {
        code = flushes ? by->flush(number) : 0;
        if (code == 0) code = drop_pages(number);
    } catch (const std::exception&) {  // no memory; the file stays, and a later close ends it
        code = -ENOMEM;
    }
    if (code != 0) states().reopen(number);
    return code;
}

int manager::remove_file(std::uint32_t number) {
    int code = begin_close(nullptr, number);
    if (code == 0) code = end_close(nullptr, number, false);
    if (code == 0) free_number(number);
    return code;
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
    const auto made =
        [&]<typename Order>(std::unique_ptr<page_manager<Order>> candidate) -> status {
        if (const int code = candidate->make(); code != 0)
            return {code, "the buffer's tables: " + error_text(code) + "; give it fewer pages"};
        out = std::move(candidate);
        return {};
    };
    return settings.order == order_kind::lru
               ? made(std::make_unique<page_manager<lru_order>>(settings, frames, env))
               : made(std::make_unique<page_manager<clock_order>>(settings, frames, env));
} catch (const std::exception&) {  // no memory, or tables that no memory could hold
    return {
        -ENOMEM,
        "the host has no memory for the buffer's tables; give it fewer pages, sessions or files"};
}

}  // namespace penstock::buffer
