// The statistics and debugging macros of the original GPUfs, which do nothing here:
// runtime::stats() counts instead.
#pragma once

#define DBGT(text, pointer, value, thread)
#define DBG_INIT()
#define GDBG(text, pointer, value)
#define GDBGS(text)
#define GDBGL()
#define GDBGV(text, value)
#define GPRINT(...)

#define INIT_ALL_STATS
#define INIT_TIMING_STATS
#define PRINT_MALLOC
#define PRINT_FREE
#define PRINT_PAGE_ALLOC_RETRIES
#define PRINT_LOCKLESS_SUCCESS
#define PRINT_LOCKED_TRIES
#define PRINT_WRONG_FILE_ID
#define PRINT_RT_MALLOC
#define PRINT_RT_FREE
#define PRINT_HT_HIT
#define PRINT_HT_MISS
#define PRINT_PRECLOSE_PUSH
#define PRINT_PRECLOSE_FETCH
#define PRINT_FLUSHED_READ
#define PRINT_FLUSHED_WRITE
#define PRINT_TRY_LOCK_FAILED
#define PRINT_KILL_BUFFER_CACHE
#define PRINT_HM_LOCKLESS
#define PRINT_HM_LOCKED
#define KERNEL_START
#define KERNEL_STOP
#define PRINT_KERNEL_TIME(frequency, blocks)
#define PRINT_RT_SEARCH_TIME(frequency, blocks)
#define PRINT_RT_WAIT_TIME(frequency, blocks)
#define PRINT_MAP_TIME(frequency, blocks)
#define PRINT_COPY_BLOCK_TIME(frequency, blocks)
#define PRINT_PAGE_READ_TIME(frequency, blocks)
#define PRINT_PAGE_ALLOC_TIME(frequency, blocks)
#define PRINT_FILE_OPEN_TIME(frequency, blocks)
#define PRINT_CPU_READ_TIME(frequency, blocks)
#define PRINT_HASH_MAP_SEARCH_TIME(frequency, blocks)
