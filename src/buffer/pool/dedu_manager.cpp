#include "buffer/pool/dedu_manager.hpp"

#include <algorithm>
#include <cerrno>

#include "buffer/core/check.hpp"
#include "buffer/core/core.hpp"
#include "buffer/pool/block_loader.hpp"
#include "buffer/pool/block_mover.hpp"

namespace penstock::buffer {

namespace {

constexpr std::uint32_t table_per_frames = 8, absent_per_frame = 2;

limits limits_of(const manager_settings& settings) {
    const dedu_settings& dedu = settings.dedu;
    const std::uint64_t pages = std::uint64_t{settings.host_pages} + settings.device_pages,
                        table = dedu.table_pages ? *dedu.table_pages : table_per_frames * pages;
    const std::uint64_t absent =
        dedu.absent_blocks ? *dedu.absent_blocks : absent_per_frame * pages * dedu.blocks_per_page;
    // A page of the table points at each.
    const std::uint64_t slots = std::min<std::uint64_t>(table, nothing / 128),
                        most_absent =
                            std::min<std::uint64_t>(slots * dedu.blocks_per_page, nothing / 2);
    return {settings.host_pages,  settings.device_pages,
            dedu.blocks_per_page, static_cast<std::uint32_t>(slots),
            settings.files,       static_cast<std::uint32_t>(std::min(absent, most_absent))};
}

template <typename Order>
class dedu_manager final : public manager {
public:
    dedu_manager(const manager_settings& settings, device_frames& frames, host::environment& env)
        : shared_(settings, limits_of(settings).pages, frames, env, core_.inside(),
                  [this](const dedu_batch& batch) { loader_.handle(batch); }),
          mover_(frames, shared_.shape, shared_.first_own_frame(settings.sessions), shared_.pages,
                 shared_.unwritten, core_.inside()),
          loader_(core_, shared_.pages, shared_.unwritten, shared_.search, mover_) {}
    int make() { return core_.make(limits_of(shared_.settings)); }

    int add_file(int fd, std::uint64_t bytes, file_access access) override {
        const bool is_lent = access == file_access::read;
        const auto seen = is_lent ? shared_.lender.files.look(fd) : lent_files::version{};
        const std::lock_guard hold(files_mutex_);
        const int number = shared_.pages.add(fd, bytes, access == file_access::read_write,
                                             begins_reads(shared_.settings, fd));
        if (number < 0) return number;
        shared_.lender.files.add(static_cast<std::uint32_t>(number), seen);
        shared_.states.open(static_cast<std::uint32_t>(number));
        return number;
    }
    std::unique_ptr<session> open_session() override {
        return shared_.sessions.open(
            [&](std::uint32_t number) { return make_dedu_session(shared_, number); });
    }
    [[nodiscard]] manager_counts counts() const override {
        return loader_.look([&] {
            manager_counts out;
            loader_.add_counts(out);
            const block_mover::counts& moved = mover_.counted();
            out.write_backs = moved.write_backs;
            out.device_write_backs = moved.device_write_backs;
            out.promotions = moved.promotions;
            out.demotions = moved.demotions;
            out.looked_blocks = shared_.search.counted().looked;
            out.shared_blocks = shared_.search.counted().shared;
            out.compared_blocks = shared_.search.compared().compared;
            out.differing_blocks = shared_.search.compared().differed;
            out.pages = core_.inside().pages.in_use();
            out.device_bytes =
                std::uint64_t{core_.inside().device.in_use()} * shared_.shape.frame_bytes;
            out.device_pages = out.device_bytes / shared_.settings.page_bytes;
            return out;
        });
    }
    [[nodiscard]] manager_contents contents() const override {
        return loader_.look([&] { return contents_of<manager_contents>(core_.inside()); });
    }
    [[nodiscard]] std::optional<failed_write> last_failed_write() const override {
        return shared_.pages.failures().get();
    }
    [[nodiscard]] const char* check() override {
        while (shared_.requests.has_posted()) shared_.requests.help();
        if (const char* const wrong = buffer::check(core_.inside()); wrong != nullptr) return wrong;
        return shared_.pages.check(
            [&](page_id id) { return shared_.unwritten.find(id) != nullptr; });
    }
    [[nodiscard]] const manager_settings& settings() const override { return shared_.settings; }
    void lend_to(host::hub& all) override {
        shared_.lender.files.tell(all);
        all.frames.enter(shared_.lender);
    }
    void leave(host::hub& all) override { all.frames.leave(shared_.lender); }
    void free_number(std::uint32_t number) override {
        const std::lock_guard hold(files_mutex_);
        shared_.states.remove(number);  // before the number may be another file's
        shared_.pages.remove(number);
    }

protected:
    [[nodiscard]] file_states& states() override { return shared_.states; }
    int drop_pages(std::uint32_t number) override {
        shared_.lender.files.remove(number);
        dedu_request asked;
        return shared_.forget(asked, number, 0, ~std::uint64_t{0}, deadline::max());
    }

private:
    core<Order> core_;  // changed by loader_
    dedu_shared shared_;
    block_mover mover_;
    block_loader<Order> loader_;
    std::mutex files_mutex_;  // files come and go
};

}  // namespace

dedu_shared::dedu_shared(const manager_settings& wanted, std::uint32_t slots, device_frames& frames,
                         host::environment& env, const core_tables& known,
                         combiner<dedu_request>::handler handle)
    : settings(wanted),
      shape(dedu_frames_for(wanted)),
      states(wanted.files, wanted.sessions, wanted.fixed_pages),
      sessions(wanted.sessions),
      pages(wanted, shape, slots, frames.host_frames(), env, known),
      unwritten(pages, wanted.page_bytes),
      search(wanted, shape, slots, first_own_frame(wanted.sessions), frames, pages, known),
      requests(std::size_t{wanted.sessions} * (dedu.window_pages + 1), wanted.batch_pages,
               std::chrono::microseconds(wanted.batch_wait_us), std::move(handle)),
      lender(wanted, env, pages) {}

// By own() and not by a look: a later owner of a page finds what was done to the file before.
int dedu_shared::forget(dedu_request& asked, std::uint32_t number, std::uint64_t first,
                        std::uint64_t end, deadline until) {
    dedu_file& file = *pages.file_at(number);
    asked.task = forget_page{};
    for (std::uint64_t at = first; at < std::min<std::uint64_t>(end, file.room); ++at) {
        asked.id = {at, number};
        std::uint32_t where = 0;
        for (std::uint32_t round = 0; !pages.page(asked.id).own(where); ++round) {
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            requests.help();
            pause_between_looks(round);
        }
        if (where != owned_entry::nowhere) requests.submit(asked);
        const int code = where == owned_entry::nowhere ? 0 : asked.code;
        file.hashes.forget(at);
        pages.page(asked.id).disown();
        if (code != 0) return code;
    }
    return 0;
}

frames_shape dedu_frames_for(const manager_settings& settings) {
    const dedu_settings& dedu = settings.dedu;
    const std::uint64_t blocks = dedu.blocks_per_page,
                        pages =
                            std::uint64_t{settings.host_pages} +
                            std::uint64_t{settings.sessions} * dedu_shared::own_pages(settings) + 1;
    const auto most_moves = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{settings.batch_pages} * blocks, 4096));
    const std::uint64_t block_bytes = settings.page_bytes / std::max<std::uint64_t>(blocks, 1);
    return {pages * blocks + move_batch::own_frames(std::max<std::uint64_t>(block_bytes, 1)),
            settings.device_pages * blocks, block_bytes, 1,
            std::max(most_moves, dedu.blocks_per_page)};
}

status make_dedu_manager(const manager_settings& settings, device_frames& frames,
                         host::environment& env, std::unique_ptr<manager>& out) try {
    const dedu_settings& dedu = settings.dedu;
    if (settings.sessions == 0 || settings.fixed_pages == 0 || dedu.window_pages == 0)
        return {-EINVAL,
                "a buffer needs a session, a page that it may fix, and windows of a page or more"};
    if (dedu.blocks_per_page == 0 || settings.page_bytes % dedu.blocks_per_page != 0 ||
        settings.page_bytes / dedu.blocks_per_page % hashed_bytes != 0)
        return {-EINVAL, "pages of " + std::to_string(settings.page_bytes) + " bytes cannot be " +
                             std::to_string(dedu.blocks_per_page) +
                             " blocks; blocks are of a multiple of " +
                             std::to_string(hashed_bytes) + " bytes"};
    if (settings.host_pages < 2) return {-EINVAL, "a buffer needs two pages in the host"};
    const auto made =
        [&]<typename Order>(std::unique_ptr<dedu_manager<Order>> candidate) -> status {
        if (const int code = candidate->make(); code != 0)
            return {code,
                    "the buffer's tables: " + error_text(code) +
                        "; give it fewer pages, or blocks of a power of two in number, up to 64"};
        out = std::move(candidate);
        return {};
    };
    return settings.order == order_kind::lru
               ? made(std::make_unique<dedu_manager<lru_order>>(settings, frames, env))
               : made(std::make_unique<dedu_manager<clock_order>>(settings, frames, env));
} catch (const std::exception&) {  // no memory, or tables that no memory could hold
    return {
        -ENOMEM,
        "the host has no memory for the buffer's tables; give it fewer pages, sessions or files"};
}

}  // namespace penstock::buffer
