// The page word: one 64-bit word per page of an open file that holds the whole state of that page.
//
//   bits   63..62  state       0 absent, 1 loading, 2 valid
//          61      use         the page was touched since the clock last passed
//          60      dirty       valid only: bytes of the page were written and the file does not
//                              have them yet (engine/dirty.hpp)
//          59..40  pins        holders of a pointer to the frame, the loader included
//          39..28  generation  counts evictions of this page, so that a copy can tell that its
//                              frame changed hands
//          27..0   frame       valid only: which frame holds the bytes
//
// Memory: device memory. Writers: any group of that device. Scope: device.
//
//   step        from     to       operation      order     by
//   try_claim   absent   loading  CAS            acquire   a group that missed; adds its pin
//   publish     loading  valid    add            release   the loader; its pin stays
//   publish_and_unpin  loading  valid  add       release   the loader; its pin goes
//   abandon     loading  absent   CAS loop       release   the loader, after an error; drops its
//                                                          pin, generation + 1
//   try_evict   valid    absent   CAS            acq_rel   a group that needs a frame; only with no
//                                                          pins and not dirty; generation + 1
//   pin         any      same     add            acquire   a reader; if the state was not valid it
//                                                          unpins again
//   unpin       any      same     subtract       release   the holder of a pin
//   touch       any      same     or             relaxed   a reader: sets use
//   age         any      same     and            relaxed   the clock: clears use
//   join_dirty  valid    same     or 0           acq_rel   a writer, pinned, after it marked the
//                                                          bytes it wrote: is the page dirty?
//   mark_dirty  valid    same     or             acq_rel   the same writer, if the page is not
//                                                          dirty: sets dirty
//   clear_dirty valid    same     and            acq_rel   a group that wrote the marked bytes
//                                                          back, pinned: clears dirty
//
// Invariants
//  (1) A word that can carry a pin is changed only by compare-and-swap, add, or, and. A plain store
//      would lose a pin that a group added meanwhile, and the frame with it.
//  (2) At most one group is the loader of a page: loading is entered by compare-and-swap from
//      absent only.
//  (3) In absent and loading the frame bits are 0, so that publish can add the frame.
//  (4) A frame is named by at most one valid word: only its holder publishes it, and try_evict
//      needs the exact word.
//  (5) While a pin is held on a valid word, the word stays valid with the same frame and
//      generation.
//  (6) Readers may add and take back pins in any state; every transition keeps the pins field.
//
// Order pairs publish (release) with load_for_read (loads in order, or acquire) and pin (acquire):
// a reader that observes `valid` also observes the bytes the loader copied. unpin (release) with
// try_evict (acquire): the last read through a pin comes before the frame is written again.
// begin_overwrite (fence) with validate (loads in order): a copy made without a pin that read one
// byte of a later occupant also sees the eviction that came before it, and is rejected. This is the
// reader side of a sequence lock (Boehm 2012, "Can seqlocks get along with programming language
// memory models?"); frames are read and written with atomic accesses then.
//
// Progress: every step is a bounded number of instructions except abandon, which retries only when
// another group changed the word. Tests: tests/unit/page_word_test.cpp, tests/explore (every
// schedule), tests/model.
#pragma once

#include "penstock/base/atomic.hpp"
#include "penstock/base/standard.hpp"

namespace penstock::engine {

using page_word = std::uint64_t;

inline constexpr std::uint32_t frame_bits = 28, generation_bits = 12, pin_bits = 20;
inline constexpr page_word frame_mask = (page_word{1} << frame_bits) - 1;
inline constexpr page_word generation_one = page_word{1} << frame_bits;
inline constexpr page_word generation_mask = ((page_word{1} << generation_bits) - 1) << frame_bits;
inline constexpr page_word pin_one = page_word{1} << (frame_bits + generation_bits);
inline constexpr page_word pin_mask = ((page_word{1} << pin_bits) - 1)
                                      << (frame_bits + generation_bits);
inline constexpr page_word dirty_bit = page_word{1} << 60, use_bit = page_word{1} << 61;
inline constexpr page_word state_mask = page_word{3} << 62, state_absent = 0,
                           state_loading = page_word{1} << 62, state_valid = page_word{2} << 62;

static_assert(frame_bits + generation_bits + pin_bits == 60,
              "the four top bits are state, use and dirty");

// More threads than any GPU runs at once can each add one pin beyond this limit before they see it
// and take it back, and the field still does not overflow into its neighbour.
inline constexpr std::uint64_t pin_limit = std::uint64_t{1} << 19;
inline constexpr std::uint64_t max_frames = frame_mask + 1;

constexpr PENSTOCK_HD page_word state_of(page_word w) { return w & state_mask; }
constexpr PENSTOCK_HD bool is_valid(page_word w) { return state_of(w) == state_valid; }
constexpr PENSTOCK_HD bool is_absent(page_word w) { return state_of(w) == state_absent; }
constexpr PENSTOCK_HD bool is_loading(page_word w) { return state_of(w) == state_loading; }
constexpr PENSTOCK_HD bool is_dirty(page_word w) { return (w & dirty_bit) != 0; }
constexpr PENSTOCK_HD std::uint32_t frame_of(page_word w) {
    return static_cast<std::uint32_t>(w & frame_mask);
}
constexpr PENSTOCK_HD std::uint32_t pins_of(page_word w) {
    return static_cast<std::uint32_t>((w & pin_mask) >> (frame_bits + generation_bits));
}
constexpr PENSTOCK_HD page_word next_generation(page_word w) {
    return (w + generation_one) & generation_mask;
}

// Every load of a page word, relaxed. Frames stream through the second-level cache of a GPU and
// would push the words out, since a word is loaded again only after many megabytes of frames. So
// this load asks the cache to keep the word. Otherwise a hit waits for device memory twice, once
// for the word (bench/results/h100/2026-11-24-hit-path.txt).
PENSTOCK_HD PENSTOCK_INLINE page_word load_word(const page_word* word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800  // older GPUs cannot be asked
    page_word seen;
    std::uint64_t keep;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
    asm volatile("ld.relaxed.gpu.global.L2::cache_hint.u64 %0, [%1], %2;"
                 : "=l"(seen)
                 : "l"(__cvta_generic_to_global(word)), "l"(keep)
                 : "memory");
    return seen;
#else
    return atomic_load<order::relaxed>(word);
#endif
}

// Looks at the word before its frame is used. On the GPU the loads of the frame are ordered after
// it without an acquire load, which would empty the first-level cache each time.
PENSTOCK_HD PENSTOCK_INLINE page_word load_for_read(const page_word* word) {
#if PENSTOCK_ON_DEVICE && !defined(PENSTOCK_STRICT_FENCES)
    const page_word seen = load_word(word);
    order_loads();
    return seen;
#else
    return atomic_load<order::acquire>(word);
#endif
}

// Looks at the word to decide what to try next; a later step checks again, so no order is needed.
PENSTOCK_HD PENSTOCK_INLINE page_word load_relaxed(const page_word* word) {
    return load_word(word);
}

// Looks at a word of the host that leads to memory, before the memory is used. Pairs with the
// release of cache_device::upload: what the host did before it stored the word, such as mapping the
// memory, is done. On the GPU the caller's next load depends on this one, which orders the two, so
// the word needs no acquire load there.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t load_reference(const std::uint64_t* word) {
#if PENSTOCK_ON_DEVICE
    return load_word(word);
#else
    return atomic_load<order::acquire>(word);
#endif
}

// Stores a word that is only a hint: it does not matter which store wins, and the word orders
// nothing.
PENSTOCK_HD PENSTOCK_INLINE void store_hint(std::uint64_t* word, std::uint64_t value) {
    atomic_store<order::relaxed>(word, value);
}

// Makes a word absent that no group can reach, because its table is being given to a file or taken
// from it. Relaxed: the file word publishes it when it turns live or vacant afterwards.
PENSTOCK_HD PENSTOCK_INLINE void reset(page_word* word) {
    atomic_store<order::relaxed>(word, page_word{0});
}

// absent -> loading with one pin. `seen` is the absent word read before. Acquire: pairs with the
// abandon or try_evict that made it absent, so the loader's own accesses come after. The use bit
// stays clear: a page that no group wants a second time goes after one round of the clock
// (docs/decisions/replacement.md has what that gains).
PENSTOCK_HD PENSTOCK_INLINE bool try_claim(page_word* word, page_word seen) {
    PENSTOCK_ASSERT(is_absent(seen));
    return atomic_compare_swap<order::acquire>(word, seen,
                                               ((seen + pin_one) | state_loading) & ~use_bit);
}

// The release of publish. On a GPU the fence stands alone: so the loads and stores before it come
// before every later store of this thread, not only before this change (recycle_published in
// engine/ring.hpp).
PENSTOCK_HD PENSTOCK_INLINE page_word add_and_release(page_word* word, page_word amount) {
#if PENSTOCK_ON_DEVICE
    release_fence();
    return atomic_fetch_add<order::relaxed>(word, amount);
#else
    return atomic_fetch_add<order::release>(word, amount);
#endif
}

// loading -> valid. Release: the bytes of the frame come before the word that names it.
PENSTOCK_HD PENSTOCK_INLINE void publish(page_word* word, std::uint32_t frame) {
    const page_word before = add_and_release(word, (state_valid - state_loading) + frame);
    PENSTOCK_ASSERT(is_loading(before) && frame_of(before) == 0);
    static_cast<void>(before);
}

// The same, and the loader's pin goes with it. The frame may change hands at once.
PENSTOCK_HD PENSTOCK_INLINE void publish_and_unpin(page_word* word, std::uint32_t frame) {
    const page_word before = add_and_release(word, (state_valid - state_loading) + frame - pin_one);
    PENSTOCK_ASSERT(is_loading(before) && frame_of(before) == 0 && pins_of(before) > 0);
    static_cast<void>(before);
}

// loading -> absent, dropping the loader's pin. The loop runs again only if a reader touched the
// word in between.
PENSTOCK_HD inline void abandon(page_word* word) {
    page_word seen = load_relaxed(word);
    for (;;) {
        PENSTOCK_ASSERT(is_loading(seen) && pins_of(seen) > 0);
        const page_word pins = (seen & pin_mask) - pin_one;
        if (atomic_compare_swap<order::release>(word, seen, pins | next_generation(seen))) return;
        seen = load_relaxed(word);
    }
}

// valid and unpinned -> absent; true if this call did it, and then the caller owns the frame.
// Acquire: pairs with unpin, so the reads of the last holder are over. Release: a group that finds
// the page absent finds the new generation.
PENSTOCK_HD PENSTOCK_INLINE bool try_evict(page_word* word, page_word seen) {
    PENSTOCK_ASSERT(is_valid(seen) && pins_of(seen) == 0 && !is_dirty(seen));
    return atomic_compare_swap<order::acq_rel>(word, seen, next_generation(seen));
}

// Adds a pin and returns the word before. If that was not valid, or carried pin_limit pins, the
// caller must unpin.
PENSTOCK_HD PENSTOCK_INLINE page_word pin(page_word* word) { return add_acquire(word, pin_one); }

// The same for a group that may not have the page's file open: the file may be closed meanwhile and
// its words given to another file, as a directory too, in which no pin may stand even for a moment.
// So the pin is taken from the valid word that the group saw, and from no other. True if it was.
PENSTOCK_HD PENSTOCK_INLINE bool pin_as_seen(page_word* word, page_word seen) {
    PENSTOCK_ASSERT(is_valid(seen));
    return atomic_compare_swap<order::acquire>(word, seen, seen + pin_one);
}

// Takes one pin back. Release: reads through the pointer come before the eviction that this may
// permit.
PENSTOCK_HD PENSTOCK_INLINE void unpin(page_word* word) {
#if PENSTOCK_ON_DEVICE
    reduce_release(word, page_word{0} - pin_one);
#else
    const page_word before = atomic_fetch_add<order::release>(word, page_word{0} - pin_one);
    PENSTOCK_ASSERT(pins_of(before) > 0);
    static_cast<void>(before);
#endif
}

// The same for a group that claims to hold a pin of that frame; false if no group holds one. A held
// pin keeps the word valid and its frame, so a word that fails the test is not held. On a GPU the
// load of the word is under way while the fence waits for the reads through the pointer: one trip
// to memory, not two.
PENSTOCK_HD PENSTOCK_INLINE bool unpin_if_held(page_word* word, std::uint32_t frame) {
    const page_word seen = load_relaxed(word);
#if PENSTOCK_ON_DEVICE
    release_fence();  // with the addition below it is unpin's release
#endif
    if (!is_valid(seen) || pins_of(seen) == 0 || frame_of(seen) != frame) return false;
#if PENSTOCK_ON_DEVICE
    reduce_relaxed(word, page_word{0} - pin_one);
#else
    unpin(word);
#endif
    return true;
}

// The use bit is a hint, so it is set only where it is clear: a hot page costs its readers no
// atomic.
PENSTOCK_HD PENSTOCK_INLINE void touch(page_word* word, page_word seen) {
    if ((seen & use_bit) == 0) atomic_or_relaxed(word, use_bit);
}
// For a group that may not have the file open (pin_as_seen). If the word changed meanwhile, the
// hint is lost.
PENSTOCK_HD PENSTOCK_INLINE void touch_as_seen(page_word* word, page_word seen) {
    if (is_valid(seen) && (seen & use_bit) == 0)
        atomic_compare_swap<order::relaxed>(word, seen, seen | use_bit);
}
PENSTOCK_HD PENSTOCK_INLINE void age(page_word* word) { atomic_and_relaxed(word, ~use_bit); }

// Called after a frame was taken from an earlier page and before its bytes are overwritten, by
// every thread that writes bytes of it.
// Readers without a pin may be on other devices if the cache is linked (engine/neighbour.hpp).
PENSTOCK_HD PENSTOCK_INLINE void begin_overwrite(bool linked) {
    if (linked) system_fence();
    else atomic_fence();
}
// Before a page is published in a linked cache, by the leader. With the release of publish, which
// has the scope of the device, it is a release for readers on other devices: these look at the word
// (load_far) and then at the bytes.
PENSTOCK_HD PENSTOCK_INLINE void begin_publish_for_all() { system_fence(); }

// Looks at a word of a linked cache, which may be another device's. Relaxed: end_load_for_read
// comes before its frame is used, and a second look after the copy.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t load_far(const std::uint64_t* word) {
    return atomic_load<order::relaxed, scope::system>(word);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t load_far(const std::uint32_t* word) {
    return atomic_load<order::relaxed, scope::system>(word);
}

// Sets the dirty bit of a pinned page that has marked bytes (engine/dirty.hpp). True if the bit was
// clear. Release: pairs with the acquire of clear_dirty, so that a group that clears the bit later
// sees every mark made before this step. If the bit is set after it was cleared, it stays set.
PENSTOCK_HD PENSTOCK_INLINE bool mark_dirty(page_word* word) {
    return (atomic_fetch_or<order::acq_rel>(word, dirty_bit) & dirty_bit) == 0;
}
// True if the page is dirty already. A group that clears the bit after this step sees the caller's
// marks.
PENSTOCK_HD PENSTOCK_INLINE bool join_dirty(page_word* word) {
    return (atomic_fetch_or<order::acq_rel>(word, page_word{0}) & dirty_bit) != 0;
}
// True if the bit was set. The caller has a pin and looks at the marks afterwards: if it sees any,
// it has to call mark_dirty again.
PENSTOCK_HD PENSTOCK_INLINE bool clear_dirty(page_word* word) {
    return (atomic_fetch_and<order::acq_rel>(word, ~dirty_bit) & dirty_bit) != 0;
}

constexpr PENSTOCK_HD bool same_frame(page_word now, page_word seen) {
    return ((now ^ seen) & (state_mask | generation_mask | frame_mask)) == 0;
}

// After a copy without a pin: true if the page kept its frame all the while. `seen` is what
// load_for_read returned.
PENSTOCK_HD PENSTOCK_INLINE bool validate(const page_word* word, page_word seen) {
    order_loads();
    return same_frame(load_word(word), seen);
}

// The same after one load whose value nothing has used yet. A copy stores what it loads, and a GPU
// issues the instructions of a thread in their order, so by the time of the second look the loads
// of the copy have returned. Here they may not have returned: with the lighter fence alone the
// model test on an H200 got elements of a page that had taken the frame in between. So the address
// of the second look depends on the value: `loaded` holds bits of every access, and `nothing` is 0,
// which the compiler must not be able to know. A fence of the whole device would do as well, but
// costs a third of the time (docs/protocol/page_word.md).
PENSTOCK_HD PENSTOCK_INLINE bool unchanged_since_load(const page_word* word, page_word seen,
                                                      std::uint32_t loaded, std::uint32_t nothing) {
#if PENSTOCK_ON_DEVICE && !defined(PENSTOCK_STRICT_FENCES)
    order_loads();
    return same_frame(load_word(word + (loaded & nothing)), seen);
#else
    static_cast<void>(loaded);
    static_cast<void>(nothing);
    atomic_fence();
    return same_frame(load_word(word), seen);
#endif
}

// load_for_read and the second look for several pages, with one fence for each of the two:
// load_relaxed of all words, end_load_for_read, load, begin_recheck, load_relaxed of all words
// again, and same_frame for each word.
PENSTOCK_HD PENSTOCK_INLINE void end_load_for_read() { order_loads(); }
PENSTOCK_HD PENSTOCK_INLINE void begin_recheck() { atomic_fence(); }
// The lighter form, for copies that have stored all that they loaded (unchanged_since_load says why
// that is enough).
PENSTOCK_HD PENSTOCK_INLINE void begin_recheck_after_copy() { order_loads(); }

}  // namespace penstock::engine
