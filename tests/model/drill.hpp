// The drill: between two rounds one thread opens a file, with a window or without, lets the host
// change it several times while it is open, and knows of every byte that it reads meanwhile what it
// must be, and of every call whether it must fail.
//
// What the rounds allow in a range the drill says exactly: it looks whether a page is in the cache,
// and so knows which place must serve it. cpu back end only.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "model/far_drill.hpp"
#include "penstock/penstock.hpp"

namespace penstock::model {

template <typename Group>
class drill {
public:
    using counts = drill_counts;

    // All outlive this.
    drill(runtime& rt, host_files& files, pinning_environment& env, const world& w,
          file_state* states, coverage& met, counts& tally)
        : rt_(rt),
          fs_(rt.ref()),
          files_(files),
          env_(env),
          w_(w),
          states_(states),
          met_(met),
          tally_(tally) {}

    // Runs while no actor uses the runtime. Returns what was wrong, or an empty string. `windowed`
    // is the descriptor if it has a window.
    std::string run(std::uint64_t h, int& windowed) {
        windowed = -1;
        file_ = static_cast<std::uint32_t>(h % w_.small_files);
        if (static_cast<std::uint32_t>(states_[file_].period) != 0)
            return {};  // a user holds it, with an older version
        while (!exists(w_, file_, states_[file_].done)) files_.change(file_);
        enter_period(states_[file_]);
        char name[16];
        name_of_file(file_, static_cast<std::uint32_t>((h >> 16) % w_.names_per_file), name);
        fd_ = open(Group{}, fs_, name);
        ++tally_.opens;
        engine::file_handle handle{};
        if (fd_ < 0 || !engine::find_file(fs_.view, fd_, handle))
            return std::string(name) + ": open gave " + error_text(fd_);
        drilled_file model(w_, file_, states_[file_].done);
        open_window(h);
        advise(Group{}, fs_, fd_, advice::random);
        if (has_window_) windowed = fd_;
        rt_.clear_view_status();
        for (std::uint64_t change = 0; change < 4 && wrong_.empty(); ++change) {
            for (std::uint64_t i = 0; i < 12 && wrong_.empty() && model.pages() > 0; ++i)
                access(model, handle, mix(h, change, i));
            files_.change(file_);
            model.changed_to(states_[file_].done, has_window_);
        }
        for (std::uint64_t i = 0; i < 24 && wrong_.empty() && model.pages() > 0; ++i)
            access(model, handle, mix(h, 99, i));
        if (close(Group{}, fs_, fd_) != 0) complain("close failed", 0);
        leave_period(states_[file_]);
        return wrong_;
    }

private:
    void complain(const std::string& complaint, std::uint64_t at) {
        if (!wrong_.empty()) return;
        wrong_ = "drill: file " + std::to_string(file_) + (has_window_ ? " with" : " without") +
                 " a window, from byte " + std::to_string(at) + ": " + complaint;
    }

    // A slot that is known already may have a window from before: so it is asked in any case.
    void open_window(std::uint64_t h) {
        using residency = pinning_environment::residency;
        env_.say_resident(mix64(h) % 4 != 0 ? residency::everything : residency::nothing);
        const std::int64_t inside = rt_.open_windows(fd_);
        env_.say_resident(residency::by_chance);
        has_window_ = inside > 0;
        file_stat facts{};
        if (stat(Group{}, fs_, fd_, &facts) != 0) complain("stat failed", 0);
        if (inside > 0 ? inside != static_cast<std::int64_t>(facts.size_bytes)
                       : inside != 0 && inside != -ENOSPC)
            complain("open_windows gave " + std::to_string(inside), 0);
    }

    // Some bytes of one page, so that what is in the cache before is what the call finds.
    void access(drilled_file& model, const engine::file_handle& handle, std::uint64_t h) {
        const std::uint64_t page = h % model.pages(), begin = page * w_.page_bytes,
                            end = model.end_of(page);
        const std::uint64_t word = engine::find_word(fs_.view, handle, page);
        if (mix64(h ^ 3) % 2 == 0)
            engine::sweep_words(fs_.view, word,
                                1);  // so that pages are loaded again however many frames there are
        // What the host tier has is what the last load brought: pages go there from the cache, and
        // nothing is read ahead here.
        const bool kept = !has_window_ && fs_.view.tier.words != nullptr &&
                          engine::is_valid(fs_.view.tier.words[word]);
        const bool cached = kept || engine::is_valid(fs_.view.words[word]);
        place from = place::cache;
        const auto expected = model.expect(page, cached, has_window_, from);
        ++(!expected               ? met_.drill_stale
           : from == place::cache  ? met_.drill_cached
           : from == place::window ? met_.drill_window
           : from == place::orphan ? met_.drill_orphan
                                   : met_.drill_request);
        const std::uint64_t at = begin + mix64(h) % (end - begin),
                            length = 1 + mix64(h ^ 1) % (end - at);
        switch (mix64(h ^ 2) % 6) {
            case 0: return by_read(expected, begin, at, length);
            case 1: return by_map(expected, begin, at, length, end);
            case 2: return by_prefetch(expected, begin, at, length);
            case 3: return by_stretch(expected, begin, at, length);
            case 4: return by_element<std::uint8_t>(expected, begin, at);
            default: return by_element<std::uint64_t>(expected, begin, at);
        }
    }

    using image = std::optional<std::vector<std::uint8_t>>;

    // Did the call return what it must, and if bytes, the right ones?
    void judge(const char* call, const image& expected, std::uint64_t begin, std::uint64_t at,
               std::int64_t got, std::uint64_t length, const void* bytes) {
        const std::int64_t wanted = expected ? static_cast<std::int64_t>(length) : -ESTALE;
        if (got != wanted)
            return complain(std::string(call) + " gave " + std::to_string(got) + " and not " +
                                std::to_string(wanted),
                            at);
        if (!expected || bytes == nullptr) return;
        const std::uint64_t wrong = different_bytes(*expected, at - begin, bytes, length);
        tally_.wrong_bytes += wrong;
        if (wrong != 0) complain(std::string(call) + " delivered wrong bytes", at);
    }

    void by_read(const image& expected, std::uint64_t begin, std::uint64_t at,
                 std::uint64_t length) {
        std::vector<std::uint8_t> bytes(length);
        const std::int64_t got =
            read(Group{}, fs_, fd_, bytes.data(), static_cast<std::int64_t>(length),
                 static_cast<std::int64_t>(at));
        if (got > 0) tally_.bytes_read += static_cast<std::uint64_t>(got);
        if (got < 0) ++tally_.errors;
        judge("read", expected, begin, at, got, length, bytes.data());
    }

    // Also looks behind the end of the file: no place may leave anything there.
    void by_map(const image& expected, std::uint64_t begin, std::uint64_t at, std::uint64_t length,
                std::uint64_t end) {
        const mapping m = map(Group{}, fs_, fd_, static_cast<std::int64_t>(at),
                              static_cast<std::int64_t>(length));
        if (m.bytes < 0) ++tally_.errors;
        judge("map", expected, begin, at, m.bytes, length, m.data);
        if (m.bytes < 0) return;
        const std::byte* const frame = fs_.view.frame_address(m.frame);
        for (std::uint64_t i = end - begin; i < w_.page_bytes; ++i)
            if (frame[i] != std::byte{0})
                return complain("something lies behind the end of the file", begin + i);
        if (unmap(Group{}, fs_, m) != 0) complain("unmap failed", at);
    }

    void by_prefetch(const image& expected, std::uint64_t begin, std::uint64_t at,
                     std::uint64_t length) {
        const std::int64_t got = prefetch(Group{}, fs_, fd_, static_cast<std::int64_t>(at),
                                          static_cast<std::int64_t>(length));
        if (got < 0) ++tally_.errors;
        judge("prefetch", expected, begin, at, got, length, nullptr);
    }

    void by_stretch(const image& expected, std::uint64_t begin, std::uint64_t at,
                    std::uint64_t length) {
        std::vector<std::uint8_t> bytes(length);
        const view<std::uint8_t> v(fs_, fd_, 1);
        if (at == 0) ++at, --length;
        if (length == 0) return by_read(expected, begin, at - 1, 1);
        const std::int64_t got =
            v.for_each(Group{}, at - 1, length,
                       [&](std::uint64_t i, std::uint8_t e) { bytes.at(i + 1 - at) = e; });
        judge("for_each", expected, begin, at, got, length, bytes.data());
    }

    // An element that cannot be had is zero, and the runtime says which it was.
    template <typename T>
    void by_element(const image& expected, std::uint64_t begin, std::uint64_t at) {
        at = at / sizeof(T) * sizeof(T);
        const view<T> v(fs_, fd_);
        if (at / sizeof(T) >= v.size()) return by_read(expected, begin, at, 1);
        const T got = v[at / sizeof(T)], zero{};
        const status noted = rt_.view_status();
        rt_.clear_view_status();
        judge("v[i]", expected, begin, at,
              noted.ok() ? static_cast<std::int64_t>(sizeof(T)) : noted.code, sizeof(T), &got);
        if (expected) return;
        if (got != zero) complain("an element that cannot be had is not zero", at);
        if (noted.message.find("byte " + std::to_string(at) + ":") == std::string::npos)
            complain("v[i] noted: " + noted.message, at);
    }

    runtime& rt_;
    const runtime_ref fs_;
    host_files& files_;
    pinning_environment& env_;
    const world w_;
    file_state* const states_;
    coverage& met_;
    counts& tally_;
    std::uint32_t file_ = 0;
    int fd_ = -1;
    bool has_window_ = false;
    std::string wrong_;
};

}  // namespace penstock::model
