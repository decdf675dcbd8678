// The lender of a buffer of whole pages: pages in frames of the host are copied by the service
// thread that asks, those in frames of the device by a thread of the lender's own.
//
// Why a thread: a call of the device may have to wait inside the driver for a call of another
// thread of the program that waits for a kernel, and that kernel waits for the service thread. So a
// service thread makes no such call. It looks at the copy now and then, and reads the file if that
// takes too long. The lender's thread waits for nothing but copies of the device that need no
// kernel to come to an end (device_frames::copy_out).
//
// A device frame keeps its bytes by a turn, which is taken only if it comes at once: a thread that
// has an earlier one may be waiting for a kernel of the buffer, which runs when there is room.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/frame_lender.hpp"
#include "buffer/pool/locked_core.hpp"

namespace penstock::buffer {

// Host frames that pages of the device come to, behind those of sessions: some for each slot.
struct lender_slots {
    std::uint32_t slots = 0, pages = 0;  // of each

    static lender_slots of(const manager_settings& settings) {
        constexpr std::uint64_t run_bytes = 64u << 10, all_bytes = 8u << 20;
        constexpr std::uint32_t most_slots = 32;
        if (settings.device_pages == 0) return {};
        const std::uint64_t pages = std::max<std::uint64_t>(1, run_bytes / settings.page_bytes);
        const std::uint64_t slots = all_bytes / (pages * settings.page_bytes);
        return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slots, 2, most_slots)),
                static_cast<std::uint32_t>(pages)};
    }
    [[nodiscard]] std::uint32_t frames() const { return slots * pages; }
};

template <typename Order>
class device_lender final : public frame_lender {
public:
    device_lender(const manager_settings& settings, host::environment& env, device_frames& frames,
                  locked_core<Order>& shared, frame_directory& pages)
        : frame_lender(settings, env),
          slots_(lender_slots::of(settings)),
          first_frame_(settings.host_pages + settings.sessions),
          frames_(frames),
          shared_(shared),
          pages_(pages),
          desk_(std::make_shared<desk>()) {
        for (std::uint32_t slot = slots_.slots; slot-- > 0;) desk_->free.push_back(slot);
        queue_.reserve(slots_.slots);
    }
    ~device_lender() override {
        {
            const std::lock_guard hold(queue_mutex_);
            stops_ = true;
        }
        news_.notify_all();
        if (thread_.joinable()) thread_.join();
        const std::lock_guard hold(desk_->alive);
        desk_->is_open = false;
    }

protected:
    [[nodiscard]] std::uint64_t size_of(std::uint32_t number) const override {
        return pages_.file_at(number).bytes;
    }
    bool copy_part(page_id id, std::uint64_t from, std::uint64_t bytes, std::byte* to) override {
        std::uint32_t frame = 0;
        if (id.page >= pages_.file_at(id.file).pages ||
            pages_.take(id, use_kind::read, frame) != found_by_entry::taken)
            return false;
        std::memcpy(to, pages_.data_of(frame) + from, bytes);
        pages_.end(frame, use_kind::read);
        return true;
    }
    std::shared_ptr<host::frame_copy> begin_part(std::uint32_t number,
                                                 const lent_files::version& known,
                                                 const host::frame_wish& wanted) override try {
        if (slots_.slots == 0 || is_broken_ || !has_thread()) return nullptr;
        auto out = std::make_shared<copied>(*this, number, known);
        if (!out->has_slot()) return nullptr;
        out->moves.reserve(slots_.pages);
        out->actions.reserve(slots_.pages);
        if (!take_run(*out, {wanted.offset / page_bytes_, number}, wanted)) return nullptr;
        {
            const std::lock_guard hold(queue_mutex_);
            queue_.push_back(out);
        }
        news_.notify_one();
        return out;
    } catch (const std::exception&) {
        return nullptr;
    }

private:
    // Outlives the lender, as copies do that a service thread still has.
    struct desk {
        std::shared_mutex alive;  // shared while bytes are taken from a slot
        bool is_open = true;      // guarded by alive
        std::mutex mutex;
        std::vector<std::uint32_t> free;  // slots; guarded by mutex
    };

    class copied final : public host::frame_copy {
    public:
        copied(device_lender& from, std::uint32_t number, const lent_files::version& known)
            : from_(from), desk_(from.desk_), number_(number), known_(known) {
            const std::lock_guard hold(desk_->mutex);
            if (desk_->free.empty()) return;
            slot_ = desk_->free.back();
            desk_->free.pop_back();
        }
        ~copied() override {
            if (!has_slot()) return;
            const std::lock_guard hold(desk_->mutex);
            desk_->free.push_back(slot_);  // there is room for as many as there are
        }
        copied(const copied&) = delete;
        copied& operator=(const copied&) = delete;

        [[nodiscard]] bool has_slot() const { return slot_ != nothing; }
        [[nodiscard]] std::uint32_t frame(std::uint32_t page) const {
            return from_.first_frame_ + slot_ * from_.slots_.pages + page;
        }

        // Acquire: pairs with end(); the bytes are there.
        [[nodiscard]] bool has_ended() const override {
            return state_.load(std::memory_order_acquire) != state::under_way;
        }
        std::uint64_t take(const host::frame_wish& wanted, std::byte* to) override {
            const std::shared_lock hold(desk_->alive, std::try_to_lock);
            if (!hold.owns_lock() || !desk_->is_open || state_ != state::there) return 0;
            const std::uint64_t in_page = wanted.offset % from_.page_bytes_,
                                count = std::min(wanted.bytes,
                                                 moves.size() * from_.page_bytes_ - in_page);
            std::memcpy(to, from_.pages_.data_of(frame(0)) + in_page, count);
            return from_.files.is_as_known(number_, known_, wanted) ? count : 0;
        }
        void end(bool good) {
            state_.store(good ? state::there : state::failed, std::memory_order_release);
        }

        std::vector<frame_move> moves;
        std::vector<action> actions;
        frame_turns::taken turns;

    private:
        enum class state : std::uint8_t { under_way, there, failed };

        device_lender& from_;
        const std::shared_ptr<desk> desk_;
        const std::uint32_t number_;
        const lent_files::version known_;
        std::uint32_t slot_ = nothing;
        std::atomic<state> state_{state::under_way};
    };

    // Pages that follow one another and lie in device frames on which no thread has a turn.
    bool take_run(copied& out, page_id id, const host::frame_wish& wanted) {
        const std::unique_lock hold(shared_.mutex, std::try_to_lock);
        if (!hold.owns_lock()) return false;
        const std::uint64_t end = std::min((wanted.offset + wanted.bytes - 1) / page_bytes_ + 1,
                                           pages_.file_at(id.file).pages.load());
        for (; id.page < end && out.moves.size() < slots_.pages; ++id.page) {
            const block* const known = shared_.find(id);
            if (known == nullptr || known->where != side::device || shared_.turns.is_written(id) ||
                !shared_.turns.is_idle_on_device(known->frame))
                break;
            out.moves.push_back({out.frame(static_cast<std::uint32_t>(out.moves.size())),
                                 known->frame, direction::to_host});
            out.actions.push_back({move::promote, nothing, nothing, nothing, known->frame, 0, id});
        }
        if (out.moves.empty()) return false;
        shared_.turns.take(out.actions, out.turns);
        return true;
    }

    // By service threads.
    bool has_thread() {
        const std::lock_guard hold(queue_mutex_);
        if (thread_.joinable()) return true;
        if (stops_) return false;
        thread_ = std::thread([this] { run(); });
        return true;
    }
    void run() {
        std::vector<std::shared_ptr<copied>> batch;
        batch.reserve(slots_.slots);
        std::vector<frame_move> moves;
        moves.reserve(slots_.frames());
        for (;;) {
            {
                std::unique_lock hold(queue_mutex_);
                news_.wait(hold, [&] { return stops_ || !queue_.empty(); });
                if (queue_.empty()) return;
                batch.swap(queue_);
            }
            moves.clear();
            for (const auto& each : batch)
                moves.insert(moves.end(), each->moves.begin(), each->moves.end());
            const int code = frames_.copy_out(moves);
            if (code != 0) is_broken_ = true;
            {
                const std::lock_guard hold(shared_.mutex);
                for (const auto& each : batch) shared_.turns.end(each->turns);
            }
            shared_.news.notify_all();
            for (const auto& each : batch) each->end(code == 0);
            batch.clear();
        }
    }

    const lender_slots slots_;
    const std::uint32_t first_frame_;
    device_frames& frames_;
    locked_core<Order>& shared_;
    frame_directory& pages_;
    const std::shared_ptr<desk> desk_;
    std::atomic<bool> is_broken_{false};
    std::mutex queue_mutex_;
    std::condition_variable news_;
    // Guarded by queue_mutex_:
    std::vector<std::shared_ptr<copied>> queue_;
    bool stops_ = false;
    std::thread thread_;  // made with the first copy
};

}  // namespace penstock::buffer
