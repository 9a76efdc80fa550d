/* Every limit of the analysis: what it means, its unit, and where its value comes from.
 *
 * Origins:
 *   noise    not a fixed time: a multiple of what the run itself shows (deviation, percentile, the other ranks)
 *   hardware follows from how machines behave, as described
 *   soak     chosen so that tests/soak/attribution finds small delays and names no rank in clean runs; docs/MEASURE.md describes how to
 *            choose them again on another machine
 *   report   below it a line is not worth reading
 *   memory   bounds what a hostile or huge record may cost
 *
 * "of a step": a share of the mean step; the excess files use the median step. */
#ifndef LS_MEASURE_LIMITS_H
#define LS_MEASURE_LIMITS_H

/* ---- Which steps count (account.c, stragglers.c). */
#define LS__WARMUP_SHARE \
    20 /* one in 20 recorded steps is warm-up ...; origin: hardware (cold caches, starting threads) */
#define LS__WARMUP_MOST  10 /* ... but no more than 10 steps; origin: hardware */
#define LS__FEWEST_STEPS 5  /* steps: with fewer, ranks are not compared, as a median has no meaning; origin: noise */

/* ---- A rank that differs in most steps (excess.c, persistent.c). */
/* Of a step: least median excess of forward or backward as a whole. Origin: hardware: two cores of one machine compute at speeds that
 * differ permanently by some percent. */
#define LS__PERSISTENT_COMPUTE 0.04
/* Of a step: least median excess of another phase, or of one segment of forward or backward. Origin: soak. */
#define LS__PERSISTENT_PLACE 0.03
/* Standard errors of the median excess that it must exceed. Origin: noise. */
#define LS__PERSISTENT_ERRORS 3.0
/* Share of a persistent excess that may be in one segment if the core is called slow. Origin: soak. */
#define LS__SPREAD_SHARE 0.5

/* ---- A rank that differs in a few steps (excess.c, intermittent.c). A rise must exceed all of these. */
#define LS__RISE_SHARE      0.03 /* of a step; origin: soak */
#define LS__RISE_NS         50e3 /* ns; origin: hardware (clock, cache misses, an interrupt) */
#define LS__RISE_DEVIATIONS 3.0  /* deviations (MAD) of the rank's other steps; origin: noise */
#define LS__RISE_TAIL       1.7  /* times the other ranks' worst ordinary steps; origin: noise, factor by soak */
#define LS__RISE_NOISE      2.0  /* times what the other ranks rise in the same step; origin: noise */
#define LS__TAIL_TRIM       50   /* one in 50 steps is not ordinary; origin: noise */
#define LS__OTHERS_QUARTILE \
    75 /* percentile of the other ranks: a second straggler shall not hide the first; origin: noise */
/* All intermittent steps of a rank together: times what the other ranks lose in the same way. Origin: noise. */
#define LS__OTHERS_FACTOR 2.0
/* Two steps lose the same if neither loses this many times the other's. Origin: soak. */
#define LS__ALIKE 1.5
/* Outstanding steps of a rank from which on none of them is compared with the others. Origin: memory (it takes time squared). */
#define LS__REPEATS_MOST 10000
/* Of a phase: a rise below it, in a step in which the thread lost its core for as long, is caches that went cold. Origin: hardware. */
#define LS__COLD_CACHE 0.5
/* Weight of a loss while computing that happened once at its place: hypervisors stop a core for milliseconds and do not count it as
 * steal. Origin: soak. */
#define LS__ONCE_WEIGHT 0.125

/* ---- Segments within forward and backward (segments.c). */
#define LS__SEGMENTS_FEWEST   4         /* in a phase: fewer show no more than the phase does; origin: noise */
#define LS__SEGMENTS_MEMORY   (1 << 25) /* numbers kept (128 MiB); origin: memory */
#define LS__SEGMENT_APART     2.0       /* times the next segment's rise: one segment stands out; origin: soak */
#define LS__SEGMENT_SHORT     20e3 /* ns: shorter ones do not show a core's speed; origin: hardware (clock, cache) */
#define LS__SEGMENT_FLOOR     10   /* percentile of a segment's times that is its time without delays; origin: noise */
#define LS__SEGMENT_PREEMPTED 64   /* segments that one interval's run-queue delay is divided among; origin: memory */

/* ---- Whether a finding is worth a line (stragglers.c, findings.c). */
/* Of the run: least cost of a straggler. Origin: report; clean runs of 2,000 steps stay below it. */
#define LS__WORTH_STRAGGLER 0.0015
/* The same for lost cores, which other programs use for moments on any machine, and for unmarked time. Origin: report. */
#define LS__WORTH_COARSE  0.03
#define LS__MOST_FINDINGS 512 /* origin: memory */
/* Times as long: two shares of excess (in forward and backward) that have one reason, and slow batches. Origin: soak. */
#define LS__LIKE_SHARES 2.0

/* ---- Cores (contention.c, resource_use.c). */
#define LS__CONTENTION_SHARE 0.05 /* of a step, run-queue delay of a rank that is worth reporting; origin: report */
#define LS__CORES_FREE       0.1  /* of the cores, unused by an oversubscribed job: others had them; origin: noise */
#define LS__OVERSUBSCRIBED   0.1  /* of a step, run-queue delay that the job's own threads cause; origin: report */
#define LS__UNEVEN_SHARE     0.05 /* of a step that a rank is busy for more or less than the median rank; origin: report */
#define LS__UNEVEN_ERRORS    3.0  /* and standard errors of that; origin: noise */
#define LS__STEAL_SHARE      0.05 /* of a step; origin: report */

/* ---- What all ranks lose alike (job_findings.c). */
#define LS__DATA_UNRECORDED 0.05 /* of a step, in the data phase of a program that records no batches; origin: report */
#define LS__DATA_ONE_RANK   0.7  /* of what the ranks' waits for data differ by, if it is one rank's; origin: soak */
#define LS__WORKERS_SPARE   1.1  /* times the workers that would just do; origin: bench/advice */
#define LS__WORKERS_MOST    512  /* that are ever suggested; origin: report */
#define LS__PHASE_SHARE     0.05 /* of the run, for checkpoints and evaluation; origin: report */
#define LS__FAULTS          1.0  /* major page faults per step; origin: report */
#define LS__FAULT_NS        100e3 /* ns that one takes; origin: hardware (an SSD) */
#define LS__IMBALANCE_SHARE 0.1   /* of a step, waiting that nothing else explains; origin: report */

/* ---- Communication (comm.c, comm_findings.c, figures.c). */
#define LS__LATENCY_BYTES   4096 /* bytes: smaller messages take the same time whatever their size; origin: hardware */
#define LS__BANDWIDTH_BYTES (64 << 10) /* bytes: larger ones show the bandwidth; origin: hardware */
#define LS__SUSTAINED_NS \
    100e6 /* ns of communication: longer than buffers of sockets and switches last; origin: hardware */
#define LS__BUCKET_SHARE  0.03 /* of a step, latency that larger buckets save; origin: report */
#define LS__BUCKET_FACTOR 2.0  /* times as many buckets as the default makes; origin: report */
#define LS__OVERLAP_SHARE 0.01 /* of a step, gained by overlap that is disabled; origin: report */
#define LS__EXPOSED_SHARE 0.05 /* of a step, exposed communication; origin: report */

/* ---- Joining the ranks' records (account.c, attribution.c, clocks.c, resource_use.c, read.c). */
#define LS__PHASE_DEPTH 16 /* phases within phases; origin: memory */
#define LS__SYNC_AHEAD \
    0.02 /* of a step, what a rank that is not ahead may do between arriving and being blocked; origin: report */
#define LS__SYNC_LOOK_BACK   512 /* collectives searched for the last one that all ranks had left; origin: memory */
#define LS__ATTRIBUTION_OPEN 16  /* newest attributions that a collective may add to; origin: memory */
#define LS__CLOCK_WINDOW_S   30  /* seconds over which a clock's drift is taken as constant; origin: hardware */
#define LS__CLOCK_WINDOWS    (1 << 14) /* origin: memory */
#define LS__CLOCK_SLACK_NS   10000     /* a clock off by less has not moved; origin: precision of time stamps */
#define LS__MOST_THREADS     1024      /* of a rank; origin: memory */
#define LS__MOST_BUCKETS     (1 << 12) /* origin: memory */

#endif
