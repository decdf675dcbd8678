#include "buffer/dedu_manager.hpp"

#include <cerrno>
#include <cstring>

#include "buffer/check.hpp"
#include "buffer/clock_order.hpp"
#include "buffer/dedu_flush.hpp"
#include "buffer/dedu_session.hpp"
#include "buffer/lru_order.hpp"

namespace penstock::buffer {

namespace {

constexpr std::uint32_t table_per_frames = 8;

limits limits_of(const manager_settings& settings, const dedu_settings& how) {
    const std::uint64_t pages = std::uint64_t{settings.host_pages} + settings.device_pages, table = how.table_pages != 0 ? how.table_pages : table_per_frames * pages;
    return {settings.host_pages, settings.device_pages, how.blocks_per_page, static_cast<std::uint32_t>(std::min<std::uint64_t>(table, nothing / 128)), settings.files};
}

}  // namespace

template <typename Order>
dedu_state<Order>::dedu_state(const manager_settings& settings, const dedu_settings& how, device_frames& frames, host::environment& env)
    : settings_(settings), how_(how), shape_(dedu_frames_for(settings, how)), frames_(frames), env_(env), latches_(limits_of(settings, how).pages),
      host_places_(std::size_t{limits_of(settings, how).pages} * how.blocks_per_page), files_(settings.files), combined_(settings.sessions, how.batch_pages, std::chrono::microseconds(how.batch_wait_us)),
      room_in_use_(settings.sessions), wave_(frames, shape_, shape_.most_moves), finder_(frames, shape_, std::min(settings.sessions, how.batch_pages) * how.blocks_per_page),
      published_(limits_of(settings, how).pages) {}

template <typename Order>
int dedu_state<Order>::make() {
    return core_.make(limits_of(settings_, how_));
}

template <typename Order>
int dedu_state<Order>::add_file(int fd, std::uint64_t bytes) {
    const std::lock_guard hold(sessions_);
    if (bytes == 0 || bytes >> 52 != 0) return -EINVAL;
    if (file_count_ == settings_.files) return -EMFILE;
    std::unique_ptr<dedu_file> added(new (std::nothrow) dedu_file);
    if (added == nullptr) return -ENOMEM;
    added->fd = fd;
    added->bytes = bytes;
    added->pages = (bytes + settings_.page_bytes - 1) / settings_.page_bytes;
    if (const int code = added->all.grow(added->pages); code != 0) return code;
    files_[file_count_] = std::move(added);
    return static_cast<int>(file_count_++);
}

template <typename Order>
std::unique_ptr<session> dedu_state<Order>::open_session() try {
    const std::lock_guard hold(sessions_);
    for (std::uint32_t number = 0; number < settings_.sessions; ++number)
        if (!room_in_use_[number]) {
            auto out = std::make_unique<dedu_session<Order>>(*this, number);
            room_in_use_[number] = true;
            return out;
        }
    return nullptr;
} catch (const std::bad_alloc&) {
    return nullptr;
}

template <typename Order>
void dedu_state<Order>::close_session(std::uint32_t number) {
    const std::lock_guard hold(sessions_);
    room_in_use_[number] = false;
}

template <typename Order>
manager_counts dedu_state<Order>::counts() const {
    const std::lock_guard hold(counting_);
    return counts_;
}

template <typename Order>
found_by_entry dedu_state<Order>::copy(page_id id, std::byte* to) {
    std::uint32_t slot = 0;
    const found_by_entry answer = page(id).entry.take(latches_.data(), slot);
    if (answer != found_by_entry::taken) return answer;
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) std::memcpy(to + i * shape_.frame_bytes, frame_at(host_places_[slot * how_.blocks_per_page + i]), shape_.frame_bytes);
    latches_[slot].end(use_kind::read);
    return answer;
}

template <typename Order>
int dedu_state<Order>::read_page(page_id id, std::byte* to) {
    const std::uint64_t wanted = bytes_in_file(id);
    if (const int code = read_whole(env_, files_[id.file]->fd, to, wanted, settings_.page_bytes, id.page * settings_.page_bytes); code != 0) return code;
    std::memset(to + wanted, 0, settings_.page_bytes - wanted);
    return 0;
}

// By the page's owner. `is_new`: these are not the bytes that the page's signatures are remembered of.
template <typename Order>
void dedu_state<Order>::sign(dedu_request& one, bool is_new) {
    dedu_page& of = page(one.id);
    one.is_signed = !files_[one.id.file]->rests;
    one.wants_signs = false;
    if (!one.is_signed) {
        if (is_new) of.signs.reset();
    } else if (!is_new && of.signs != nullptr) {
        for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) one.blocks[i].sign = of.signs[i];
    } else if (how_.sign_on_device) {
        one.wants_signs = true;
    } else {
        for (content_finder::wanted& block : one.blocks) block.sign = masked(signature_of(how_.signature, block.bytes, shape_.frame_bytes));
        remember(one);
    }
}

template <typename Order>
int dedu_state<Order>::ask(dedu_request& one) {
    combined_.submit(one, [this](const batch& all) { handle(all); });
    return one.code;
}

template <typename Order>
const char* dedu_state<Order>::check() {
    if (const char* const wrong = buffer::check(core_.inside()); wrong != nullptr) return wrong;
    for (std::uint32_t number = 0; number < file_count_; ++number)
        for (std::uint64_t at = 0; at < files_[number]->pages; ++at) {
            const page_id id{at, number};
            const std::uint32_t where = page(id).entry.where(), slot = core_.inside().pages.find(id);
            if (page(id).entry.is_owned()) return "a page has an owner, and nobody uses it";
            if ((where == owned_entry::elsewhere || where >= owned_entry::first_slot) != (slot != nothing)) return "an entry and the core disagree on whether a page is in the buffer";
            if ((where == owned_entry::unwritten) != (find_unwritten(id) != nullptr)) return "an entry does not tell of a page that could not be written";
            if (where >= owned_entry::first_slot && (where - owned_entry::first_slot != slot || !published_[slot] || !latches_[slot].is_idle())) return "a page can be read in a slot that it does not have";
            for (std::uint32_t i = 0; where >= owned_entry::first_slot && i < how_.blocks_per_page; ++i)
                if (core_.block_of(id, i)->where != side::host || core_.block_of(id, i)->frame != host_places_[slot * how_.blocks_per_page + i]) return "a page can be read where its blocks are not";
        }
    return nullptr;
}

frames_shape dedu_frames_for(const manager_settings& settings, const dedu_settings& how) {
    const std::uint64_t blocks = how.blocks_per_page, pages = std::uint64_t{settings.host_pages} + std::uint64_t{settings.sessions} * settings.fixed_pages + 1;
    const auto most_moves = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{how.batch_pages} * blocks, 4096));
    return {pages * blocks, settings.device_pages * blocks, settings.page_bytes / std::max<std::uint64_t>(blocks, 1), 1, std::max(most_moves, how.blocks_per_page)};
}

status make_dedu_manager(const manager_settings& settings, const dedu_settings& how, device_frames& frames, host::environment& env, std::unique_ptr<manager>& out) try {
    if (settings.sessions == 0 || settings.fixed_pages == 0 || how.batch_pages == 0) return {-EINVAL, "a buffer needs a session, a page that it may fix, and batches of a page or more"};
    if (how.blocks_per_page == 0 || settings.page_bytes % how.blocks_per_page != 0 || settings.page_bytes / how.blocks_per_page % signed_bytes != 0)
        return {-EINVAL, "pages of " + std::to_string(settings.page_bytes) + " bytes cannot be " + std::to_string(how.blocks_per_page) + " blocks; blocks are of a multiple of " + std::to_string(signed_bytes) + " bytes"};
    if (settings.host_pages < 2) return {-EINVAL, "a buffer needs two pages in the host"};
    const auto made = [&]<typename Order>(std::unique_ptr<dedu_state<Order>> one) -> status {
        if (const int code = one->make(); code != 0) return {code, "the buffer's tables: " + error_text(code) + "; give it fewer pages, or blocks of a power of two in number, up to 64"};
        out = std::move(one);
        return {};
    };
    return settings.order == order_kind::lru ? made(std::make_unique<dedu_state<lru_order>>(settings, how, frames, env))
                                             : made(std::make_unique<dedu_state<clock_order>>(settings, how, frames, env));
} catch (const std::bad_alloc&) {
    return {-ENOMEM, "the host has no memory for the buffer's tables; give it fewer pages"};
}

}  // namespace penstock::buffer
