// The units of Grafana 11 that are a symbol beside a number.

/**
 * Pairs of an identifier and a format: a sign, a symbol and an offset.
 * `=` number, `~` powers of 1000, `#` powers of 1024, `$` money, `&` money with the symbol behind,
 * `/` counts, `?` true/false. With `~W+1`, values count thousands of watts.
 */
export const TABLE = `
none =, sishort ~, humidity =%H, dB =dB, candela ~cd, pixel =px, accMS2 =m/sec², accFS2 =f/sec², accG =g, degree =°,
radian =rad, grad =grad, arcmin =arcmin, arcsec =arcsec, areaM2 =m², areaF2 =ft², areaMI2 =mi², acres =ac,
hectares =ha, flops ~FLOPS, mflops ~FLOPS+2, gflops ~FLOPS+3, tflops ~FLOPS+4, pflops ~FLOPS+5, eflops ~FLOPS+6,
zflops ~FLOPS+7, yflops ~FLOPS+8, ppm =ppm, conppb =ppb, conngm3 =ng/m³, conngNm3 =ng/Nm³, conμgm3 =μg/m³,
conμgNm3 =μg/Nm³, conmgm3 =mg/m³, conmgNm3 =mg/Nm³, congm3 =g/m³, congNm3 =g/Nm³, conmgdL =mg/dL, conmmolL =mmol/L,
currencyUSD $$, currencyGBP $£, currencyEUR $€, currencyJPY $¥, currencyRUB $₽, currencyUAH $₴, currencyBRL $R$,
currencyDKK &kr, currencyISK &kr, currencyNOK &kr, currencySEK &kr, currencyCZK $czk, currencyCHF $CHF,
currencyPLN $PLN, currencyBTC $฿, currencymBTC $mBTC, currencyμBTC $μBTC, currencyZAR $R, currencyINR $₹,
currencyKRW $₩, currencyIDR $Rp, currencyPHP $PHP, currencyVND &đ, currencyTRY &₺, currencyMYR $RM, currencyXPF $XPF,
currencyBGN $BGN, currencyPYG $₲, currencyUYU $UYU, currencyILS $₪, bytes #B, decbytes ~B, bits #b, decbits ~b,
kbytes #B+1, deckbytes ~B+1, mbytes #B+2, decmbytes ~B+2, gbytes #B+3, decgbytes ~B+3, tbytes #B+4, dectbytes ~B+4,
pbytes #B+5, decpbytes ~B+5, pps ~p/s, binBps #B/s, Bps ~B/s, binbps #b/s, bps ~b/s, KiBs #B/s+1, Kibits #b/s+1,
KBs ~B/s+1, Kbits ~b/s+1, MiBs #B/s+2, Mibits #b/s+2, MBs ~B/s+2, Mbits ~b/s+2, GiBs #B/s+3, Gibits #b/s+3, GBs ~B/s+3,
Gbits ~b/s+3, TiBs #B/s+4, Tibits #b/s+4, TBs ~B/s+4, Tbits ~b/s+4, PiBs #B/s+5, Pibits #b/s+5, PBs ~B/s+5,
Pbits ~b/s+5, watt ~W, kwatt ~W+1, megwatt ~W+2, gwatt ~W+3, mwatt ~W-1, Wm2 ~W/m², voltamp ~VA, kvoltamp ~VA+1,
voltampreact ~VAr, kvoltampreact ~VAr+1, watth ~Wh, watthperkg ~Wh/kg, kwatth ~Wh+1, kwattm ~W-Min+1, mwatth ~Wh+2,
amph ~Ah, kamph ~Ah+1, mamph ~Ah-1, joule ~J, ev ~eV, amp ~A, kamp ~A+1, mamp ~A-1, volt ~V, kvolt ~V+1, mvolt ~V-1,
dBm ~dBm, mohm ~Ω-1, ohm ~Ω, kohm ~Ω+1, Mohm ~Ω+2, farad ~F, µfarad ~F-2, nfarad ~F-3, pfarad ~F-4, ffarad ~F-5,
henry ~H, mhenry ~H-1, µhenry ~H-2, lumens ~Lm, flowgpm =gpm, flowcms =cms, flowcfs =cfs, flowcfm =cfm, litreh =L/h,
flowlpm =L/min, flowmlpm =mL/min, lux =lux, forceNm ~Nm, forcekNm ~Nm+1, forceN ~N, forcekN ~N+1, Hs ~H/s, KHs ~H/s+1,
MHs ~H/s+2, GHs ~H/s+3, THs ~H/s+4, PHs ~H/s+5, EHs ~H/s+6, massmg ~g-1, massg ~g, masslb =lb, masskg ~g+1, masst =t,
lengthmm ~m-1, lengthin =in, lengthft =ft, lengthm ~m, lengthkm ~m+1, lengthmi =mi, pressurembar ~bar-1,
pressurebar ~bar, pressurekbar ~bar+1, pressurepa ~Pa, pressurehpa =hPa, pressurekpa =kPa, pressurehg ="Hg, radbq ~Bq,
radci ~Ci, radgy ~Gy, radrad ~rad, radsv ~Sv, radmsv ~Sv-1, radusv ~Sv-2, radrem ~rem, radexpckg ~C/kg, radr ~R,
radsvh ~Sv/h, radmsvh ~Sv/h-1, radusvh ~Sv/h-2, rotrpm =rpm, rothz ~Hz, rotkhz ~Hz+1, rotmhz ~Hz+2, rotghz ~Hz+3,
rotrads =rad/s, rotdegs =°/s, celsius =°C, fahrenheit =°F, kelvin =K, hertz ~Hz, cps /c/s, ops /ops/s, reqps /req/s,
rps /rd/s, wps /wr/s, iops /io/s, eps /evt/s, mps /msg/s, recps /rec/s, rowsps /rows/s, cpm /c/m, opm /ops/m,
reqpm /req/m, rpm /rd/m, wpm /wr/m, epm /evts/m, mpm /msgs/m, recpm /rec/m, rowspm /rows/m, velocityms =m/s,
velocitykmh =km/h, velocitymph =mph, velocityknot =kn, mlitre ~L-1, litre ~L, m3 =m³, Nm3 =Nm³, dm3 =dm³, gallons =gal,
bool ?True/False, bool_yes_no ?Yes/No, bool_on_off ?On/Off
`;

/** Units with a function of their own. */
export const OWN = `
string short percent percentunit hex0x hex sci locale dateTimeAsIso dateTimeAsIsoNoDateIfToday dateTimeAsUS
dateTimeAsUSNoDateIfToday dateTimeAsLocal dateTimeAsLocalNoDateIfToday dateTimeAsSystem dateTimeFromNow pressurepsi ns
µs ms s m h d dtdurationms dtdurations dthms dtdhms timeticks clockms clocks
`;
